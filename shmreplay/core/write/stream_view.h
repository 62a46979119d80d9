// What a rule sees of the stream that it looks at. Steps have absolute numbers, from 0 at the stream's start.
#pragma once

#include <cstdint>

namespace shmreplay {

class StreamView {
 public:
  virtual ~StreamView() = default;
  virtual uint64_t newest() const noexcept = 0;  // the step just finished, or the open row at the episode's end
  virtual uint64_t oldest_held() const noexcept = 0;
  virtual uint64_t episode_start() const noexcept = 0;
  virtual uint64_t stretch_start() const noexcept = 0;  // the first step since the history was last cleared
  virtual uint64_t max_steps() const noexcept = 0;      // finished steps that are held at most
  virtual bool has(uint64_t step, uint32_t column) const noexcept = 0;
  virtual bool has_all_since(uint64_t step) const noexcept = 0;        // every step from that one on has every column
  virtual const char* cell(uint64_t step, uint32_t column) const = 0;  // of a plain column
};

}  // namespace shmreplay
