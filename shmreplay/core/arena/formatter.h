// Writes an empty arena into two fresh segments. No other process can see them yet, so no lock and no log are needed.
// The ready word is stored last, with release.
#pragma once

#include <string>

#include "arena/layout.h"

namespace shmreplay {

class Formatter {
 public:
  Formatter(int index_fd, int data_fd, const ArenaSpec& spec) : index_fd_(index_fd), data_fd_(data_fd), spec_(spec) {}

  // Writes into two segments of the planned sizes. The ready word is stored last, or left to Arena::publish(). Throws
  // std::invalid_argument if a spec is out of range, std::system_error if a segment cannot be mapped.
  void run(const std::string& instance, const std::string& name, bool published = true);

 private:
  void write_header(const std::string& instance, const std::string& name);
  void write_state();
  void write_lists();
  void write_tables();
  void write_table(uint32_t index, uint64_t item_base, uint64_t& selectors);

  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(index_ + offset);
  }

  int index_fd_, data_fd_;
  const ArenaSpec& spec_;
  Plan plan_{};
  char* index_ = nullptr;
};

}  // namespace shmreplay
