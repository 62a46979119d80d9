// What keeps the rows of a view where they are, as long as anybody has it.
#pragma once

#include <memory>

#include "table_context.h"

namespace shmreplay {

// The call that drew a view: its lease names the chunks, its scratch tells the rows. Whoever lets go of it last gives
// the chunks back; in a forked child that does nothing, they are its parent's. Made and destroyed with the GIL.
class ViewLease {
 public:
  explicit ViewLease(std::shared_ptr<TableContext> context)
      : context_(std::move(context)), call_(context_->take_view_call()) {}
  ~ViewLease() {
    call_->drop();
    if (is_whole_) context_->keep_view_call(std::move(call_));
  }
  ViewLease(const ViewLease&) = delete;
  ViewLease& operator=(const ViewLease&) = delete;

  SampleCall& call() noexcept { return *call_; }
  void set_whole() noexcept { is_whole_ = true; }  // the call may be used again

 private:
  std::shared_ptr<TableContext> context_;
  std::unique_ptr<SampleCall> call_;
  bool is_whole_ = false;
};

// What an array of the view's rows is kept alive by.
inline nb::capsule owner_of(std::shared_ptr<ViewLease> lease) {
  return nb::capsule(new std::shared_ptr<ViewLease>(std::move(lease)),
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<ViewLease>*>(p); });
}

// Keeps the memory mapped. A row that is read after its lease shows what is there by then; that is no fault.
inline nb::capsule owner_of(std::shared_ptr<Arena> arena) {
  return nb::capsule(new std::shared_ptr<Arena>(std::move(arena)),
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<Arena>*>(p); });
}

}  // namespace shmreplay
