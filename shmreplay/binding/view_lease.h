// What keeps the rows of a view where they are, for as long as anything uses them.
#pragma once

#include <memory>

#include "table_context.h"

namespace shmreplay {

// The call that drew a view. Its lease names the chunks, and its memory tells where the rows are. When the last owner
// lets go of it, the chunks are given back; in a forked child nothing happens then, because they are its parent's. Made
// and destroyed with the GIL.
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

// Keeps the lease for an array of the view's rows.
inline nb::capsule owner_of(std::shared_ptr<ViewLease> lease) {
  return nb::capsule(new std::shared_ptr<ViewLease>(std::move(lease)),
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<ViewLease>*>(p); });
}

// Keeps the memory mapped. A row that is read after its lease may show anything by then; that is no fault.
inline nb::capsule owner_of(std::shared_ptr<Arena> arena) {
  return nb::capsule(new std::shared_ptr<Arena>(std::move(arena)),
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<Arena>*>(p); });
}

}  // namespace shmreplay
