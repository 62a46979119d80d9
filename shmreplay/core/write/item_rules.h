// Rules that make items of a stream's steps: windows around reference steps, and patterns that are tried after each
// step.
//
// A rule is told of every finished step and of the end of every episode. It answers with the items that are due.
//
// A window takes steps r + lo .. r + hi - 1 around each reference step r. Reference steps are every `period`-th step of
// an episode, never its final row. The rule says whether what lies before the episode's start or after its end is
// skipped, padded, shortened or shifted.
//
// A pattern's reference is the newest step. A pattern may reach back over an episode's start as far as the history
// holds, and it has conditions.
//
// For a window across episodes, all steps since the history was last cleared are one stretch, which begins and ends as
// an episode does.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "write/due_item.h"
#include "write/stream_view.h"

namespace shmreplay {

enum class AtStart : uint32_t { kSkip = 0, kShort = 1, kRepeat = 2, kZeros = 3 };
enum class AtEnd : uint32_t { kSkip = 0, kShorten = 1, kPad = 2, kShift = 3 };
enum class Reach : uint32_t { kEpisode = 0, kHistory = 1, kWholeEpisode = 2, kStretch = 3 };

struct RuleSlice { int32_t begin, end, step; };  // offsets from the reference step, end exclusive

struct RuleOutput {
  uint16_t column;
  bool squeezed;
  bool moves;  // it moves with the window's end, when that is shortened
  std::vector<RuleSlice> slices;
};

enum class ConditionKind : uint32_t { kStepIndex = 0, kStepsSinceApplied = 1, kEndOfEpisode = 2, kData = 3 };
enum class Compare : uint32_t { kEqual = 0, kNotEqual = 1, kLess = 2, kLessEqual = 3, kGreater = 4, kGreaterEqual = 5 };

struct Condition {
  ConditionKind kind;
  Compare compare;
  uint64_t modulo;  // 0: none
  double value;
  uint16_t column;  // kData: a scalar column
};

enum class PriorityKind : uint32_t { kCall = 0, kConstant = 1, kColumn = 2, kTd = 3 };

struct PriorityRule {
  PriorityKind kind = PriorityKind::kCall;
  double value = 0;  // kConstant: the priority; kTd: eta
  uint16_t column = 0;
  bool from_reference = false;  // kTd: over the steps from the reference step on; else over all
};

// How numbers of a column are read: NumPy's kind character and the bytes of one element.
struct NumberFormat {
  char kind;
  uint32_t bytes;
};
double read_number(const char* at, NumberFormat format) noexcept;

class ItemRule {
 public:
  uint32_t table = 0;
  int32_t lo = 0, hi = 1;
  uint32_t period = 1;
  AtStart at_start = AtStart::kSkip;
  AtEnd at_end = AtEnd::kSkip;
  Reach reach = Reach::kEpisode;
  bool is_strict = false;  // a missing cell is an error, not a reason to make no item
  bool is_unroll = false;  // its items are to lie in one chunk each
  std::vector<RuleOutput> outputs;
  std::string names;
  std::vector<Condition> conditions;
  PriorityRule priority;

  // How many steps a writer must hold for this rule.
  uint32_t history() const noexcept;

  // Makes the rule's pattern now, so that no look throws. Throws std::length_error if the pattern is too large for a
  // record. Copies of a rule (one for each stream) share their patterns and belong to one thread.
  void prepare() { prepared({}); }

  // What a look found missing. A look answers kOk; kMissingCell, with what was missing; kHistory if the history cannot
  // hold what the rule needs; or kBadPriority.
  struct Missing {
    uint64_t step;
    uint16_t column;
  };

  // A step was finished. Adds the item that is due, if any.
  Status on_step(const StreamView& stream, const std::vector<NumberFormat>& formats, std::vector<DueItem>& due,
                 Missing& missing);

  // The episode ends. `has_final`: the newest row is its final row, which may lack columns and is no reference step.
  // `clears`: the stretch ends too. Else the final row is a step like any other for a window across episodes.
  Status on_end(const StreamView& stream, bool has_final, bool clears, const std::vector<NumberFormat>& formats,
                std::vector<DueItem>& due, Missing& missing);

  // Makes an item of the newest step now. Every cell that it selects must be there.
  Status on_demand(const StreamView& stream, const std::vector<NumberFormat>& formats, std::vector<DueItem>& due,
                   Missing& missing);

  // Whether an output looks beyond an episode's last step. Then an episode that did not terminate needs a final row.
  bool wants_final() const noexcept;
  // Whether an output that moves shows a next step for its own sake (a next observation), so that the final row must
  // have its cell. That is so if it shows one step, or if an output that does not move shows the same column. Else the
  // output is a column under another name, and a final row may lack its cell.
  bool is_next(const RuleOutput& output) const noexcept;

  // The items of the last look are in.
  void applied() noexcept {
    applied_before_ = pending_applied_;
    made_before_ = pending_made_;
  }
  // They are not: the same look may come again.
  void forget() noexcept {
    pending_applied_ = applied_before_;
    pending_made_ = made_before_;
  }

 private:
  struct Span {
    uint64_t reference;
    uint64_t end;
    uint32_t after;
    bool ends_with_final;
  };  // rows from reference + lo to end
  Status make(const StreamView& stream, const Span& span, const std::vector<NumberFormat>& formats,
              std::vector<DueItem>& due, Missing& missing);
  Status find_lacking(const StreamView& stream, uint64_t first, const Span& span, std::vector<bool>& lacking,
                      Missing& missing) const;
  bool holds(const StreamView& stream, bool at_episode_end, const std::vector<NumberFormat>& formats) const;
  int64_t trigger() const noexcept { return hi > 1 ? hi : 1; }
  uint64_t start_of(const StreamView& stream) const noexcept;  // of the episode or stretch that its reference steps are
                                                               // counted in
  bool asks_end() const noexcept;
  PreparedPattern& prepared(const std::vector<bool>& lacking);
  double priority_of(const StreamView& stream, uint64_t first, uint64_t end, uint64_t reference,
                     const std::vector<NumberFormat>& formats) const;
  int64_t whole_hi(const StreamView& stream) const;
  Status end_window(const StreamView& stream, bool has_final, uint64_t reference,
                    const std::vector<NumberFormat>& formats, std::vector<DueItem>& due, Missing& missing, bool& stop);

  uint64_t applied_before_ = 0, pending_applied_ = 0;  // 1 + the newest step at the last look that made an item
  uint64_t made_before_ = 0, pending_made_ = 0;        // 1 + the last reference step that an item was made for
  using Patterns = std::map<std::vector<bool>, std::unique_ptr<PreparedPattern>>;
  std::shared_ptr<Patterns> patterns_ = std::make_shared<Patterns>();
};

}  // namespace shmreplay
