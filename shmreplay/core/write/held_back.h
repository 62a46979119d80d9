// Items that a writer holds back, so that those of several steps go in with one hold.
//
// They wait in the process's memory and are lost when it dies. Meanwhile their steps stay in the stream's window. The
// items that one call found due go in together; the calls go in one after another, in their order.
#pragma once

#include <vector>

#include "write/due_insert.h"

namespace shmreplay {

class HeldBack {
 public:
  // `commit_every`: how many steps' items share a hold. 1: nothing is held back.
  explicit HeldBack(uint32_t commit_every) noexcept : commit_every_(commit_every) {}

  bool empty() const noexcept { return due_.empty(); }
  uint32_t size() const noexcept { return static_cast<uint32_t>(due_.size()); }

  // Whether a call about step `newest` that found `more` items due must put everything in. A call that found none may
  // leave that to a later call about the same step, which may still make an item by hand.
  bool is_time(uint64_t newest, uint32_t more) const noexcept {
    if (commit_every_ == 1 || size() + more >= kInsertGroup) return true;  // a hold takes no more
    return !empty() && newest - since_ + (more > 0 ? 1 : 0) >= commit_every_;
  }

  void add(const std::vector<DueItem>& due, uint64_t newest) {
    if (due.empty()) return;
    if (empty()) since_ = newest;
    due_.insert(due_.end(), due.begin(), due.end());
    keys_.resize(due_.size());
    calls_.push_back({static_cast<uint32_t>(due.size()), 0});
  }

  // A run for each call; valid until the next add() or settle().
  void add_runs(StreamItems& stream, std::vector<DueRun>& runs) {
    size_t at = 0;
    for (const Call& call : calls_) {
      runs.push_back({&stream, due_.data() + at, keys_.data() + at, call.n, call.done});
      at += call.n;
    }
  }

  // Forgets the items of these runs that are in and keeps their keys. The runs came from add_runs().
  void settle(const std::vector<DueRun>& runs) {
    size_t num_whole = 0, at = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
      went_in_.insert(went_in_.end(), runs[i].keys + calls_[i].done, runs[i].keys + runs[i].done);
      calls_[i].done = runs[i].done;
      if (num_whole != i || calls_[i].done < calls_[i].n) continue;
      ++num_whole;
      at += calls_[i].n;
    }
    calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(num_whole));
    due_.erase(due_.begin(), due_.begin() + static_cast<ptrdiff_t>(at));
    keys_.resize(due_.size());
  }

  // Drops all items that are held back.
  void clear() noexcept {
    calls_.clear();
    due_.clear();
  }

  // Keys of the held-back items that went in since this was last emptied, in their order.
  std::vector<int64_t>& went_in() noexcept { return went_in_; }

 private:
  struct Call { uint32_t n, done; };  // items, and how many of them are in

  uint32_t commit_every_;
  std::vector<DueItem> due_;
  std::vector<int64_t> keys_;
  std::vector<Call> calls_;
  uint64_t since_ = 0;  // the step of the first call since nothing was held back
  std::vector<int64_t> went_in_;
};

}  // namespace shmreplay
