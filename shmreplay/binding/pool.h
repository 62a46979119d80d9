// Things that the calls of a handle use one after another; calls that overlap get one each.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "gil.h"

namespace shmreplay {

template <class T>
class Pool {
 public:
  // One thing out of the pool (a writer, or a sample call) for one call. A call that overlaps with no other gets the
  // one of the call before, with its chunk half full and its patterns decoded. It goes back to the pool unless the
  // call's outcome makes it suspect.
  class Loan {
   public:
    template <class Make>
    Loan(Pool& pool, Make make) : pool_(pool), thing_(pool.take()) {
      if (thing_ == nullptr) thing_ = make();
    }
    ~Loan() {
      if (thing_ != nullptr && usable_) pool_.keep(std::move(thing_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *thing_; }

    Status keep_if_usable(Status status) {
      usable_ = status != Status::kSessionLost && status != Status::kForked && status != Status::kFailed;
      return status;
    }

   private:
    Pool& pool_;
    std::unique_ptr<T> thing_;
    bool usable_ = true;
  };

  // Keeps nothing any more: what is on loan is destroyed when it comes back. Called with the GIL, which is released
  // while things are destroyed.
  void end() {
    std::vector<std::unique_ptr<T>> things;
    {
      std::lock_guard lock(mutex_);
      is_ended_ = true;
      things.swap(things_);
    }
    const GilRelease release;
    things.clear();
  }

 private:
  std::unique_ptr<T> take() {
    std::lock_guard lock(mutex_);
    if (things_.empty()) return nullptr;
    std::unique_ptr<T> thing = std::move(things_.back());
    things_.pop_back();
    return thing;
  }
  void keep(std::unique_ptr<T> thing) {
    std::lock_guard lock(mutex_);
    if (!is_ended_) things_.push_back(std::move(thing));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> things_;
  bool is_ended_ = false;
};

}  // namespace shmreplay
