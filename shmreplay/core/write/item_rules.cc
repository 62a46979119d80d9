#include "write/item_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace shmreplay {
namespace {

template <class T>
double read_as(const char* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

bool compare(double left, Compare how, double right) noexcept {
  switch (how) {
    case Compare::kEqual: return left == right;
    case Compare::kNotEqual: return left != right;
    case Compare::kLess: return left < right;
    case Compare::kLessEqual: return left <= right;
    case Compare::kGreater: return left > right;
    default: return left >= right;
  }
}

}  // namespace

double read_number(const char* at, NumberFormat f) noexcept {
  switch (f.kind) {
    case 'f': return f.bytes == 4 ? read_as<float>(at) : f.bytes == 8 ? read_as<double>(at) : NAN;
    case 'i':
      return f.bytes == 1   ? read_as<int8_t>(at)
             : f.bytes == 2 ? read_as<int16_t>(at)
             : f.bytes == 4 ? read_as<int32_t>(at)
                            : read_as<int64_t>(at);
    case 'u':
    case 'b':
      return f.bytes == 1   ? read_as<uint8_t>(at)
             : f.bytes == 2 ? read_as<uint16_t>(at)
             : f.bytes == 4 ? read_as<uint32_t>(at)
                            : read_as<uint64_t>(at);
    default: return NAN;
  }
}

uint32_t ItemRule::history() const noexcept { return static_cast<uint32_t>(trigger() - std::min(lo, 0)); }

bool ItemRule::asks_end() const noexcept {
  return std::any_of(conditions.begin(), conditions.end(),
                     [](const Condition& c) { return c.kind == ConditionKind::kEndOfEpisode; });
}

uint64_t ItemRule::start_of(const StreamView& stream) const noexcept {
  return reach == Reach::kStretch ? stream.stretch_start() : stream.episode_start();
}

bool ItemRule::wants_final() const noexcept {
  return hi > 1 && std::any_of(outputs.begin(), outputs.end(), [](const RuleOutput& o) { return o.moves; });
}

bool ItemRule::is_next(const RuleOutput& output) const noexcept {
  const auto shows_it_too = [&](const RuleOutput& o) { return !o.moves && o.column == output.column; };
  return output.squeezed || std::any_of(outputs.begin(), outputs.end(), shows_it_too);
}

bool ItemRule::holds(const StreamView& stream, bool at_episode_end, const std::vector<NumberFormat>& formats) const {
  const uint64_t t = stream.newest();
  for (const Condition& c : conditions) {
    double left = 0;
    switch (c.kind) {
      case ConditionKind::kStepIndex: left = static_cast<double>(t - stream.episode_start()); break;
      case ConditionKind::kStepsSinceApplied: left = static_cast<double>(t + 1 - applied_before_); break;
      case ConditionKind::kEndOfEpisode:
        if (at_episode_end != (c.value != 0)) return false;
        continue;
      case ConditionKind::kData:
        if (!stream.has(t, c.column)) return false;
        left = read_number(stream.cell(t, c.column), formats[c.column]);
        break;
    }
    if (c.modulo > 0) left = std::fmod(left, static_cast<double>(c.modulo));
    if (!compare(left, c.compare, c.value)) return false;
  }
  return true;
}

Status ItemRule::on_step(const StreamView& stream, const std::vector<NumberFormat>& formats, std::vector<DueItem>& due,
                         Missing& missing) {
  const uint64_t t = stream.newest();
  if (reach == Reach::kWholeEpisode) {  // said while the episode can still be ended, before its start is gone
    return t - stream.episode_start() < stream.max_steps() ? Status::kOk : Status::kHistory;
  }
  if (asks_end()) return Status::kOk;
  const uint64_t start = start_of(stream);
  const int64_t reference = static_cast<int64_t>(t) - (trigger() - 1);
  if (reference < static_cast<int64_t>(start)) return Status::kOk;
  const auto r = static_cast<uint64_t>(reference);
  if ((r - start) % period != 0 || !holds(stream, false, formats)) return Status::kOk;
  return make(stream, {r, r + static_cast<uint64_t>(static_cast<int64_t>(hi)), 0, false}, formats, due, missing);
}

Status ItemRule::on_demand(const StreamView& stream, const std::vector<NumberFormat>& formats,
                           std::vector<DueItem>& due, Missing& missing) {
  const uint64_t t = stream.newest();
  const auto end = static_cast<int64_t>(t) + hi, first = static_cast<int64_t>(t) + lo;
  if (first < static_cast<int64_t>(stream.oldest_held()) || end <= first) return Status::kHistory;
  return make(stream, {t, static_cast<uint64_t>(end), 0, false}, formats, due, missing);
}

Status ItemRule::on_end(const StreamView& stream, bool has_final, bool clears, const std::vector<NumberFormat>& formats,
                        std::vector<DueItem>& due, Missing& missing) {
  const uint64_t start = start_of(stream), t = stream.newest();
  if (t + 1 <= start) return Status::kOk;
  if (reach == Reach::kStretch && !clears) {
    if (!has_final) return Status::kOk;
    for (const RuleOutput& o : outputs) {  // else every window over this row would fail, and the stream with it
      if (stream.has(t, o.column)) continue;
      missing = {t, o.column};
      return Status::kMissingCell;
    }
    return on_step(stream, formats, due, missing);
  }
  if (reach == Reach::kHistory) {
    const bool is_new = has_final;  // a finished step was looked at when it was finished
    if (!(is_new || asks_end()) || !holds(stream, true, formats)) return Status::kOk;
    return make(stream, {t, t + static_cast<uint64_t>(static_cast<int64_t>(hi)), 0, has_final && hi == 1}, formats, due,
                missing);
  }
  const uint64_t references_end = has_final ? t : t + 1;
  if (reach == Reach::kWholeEpisode) {
    if (references_end == start || !holds(stream, true, formats)) return Status::kOk;
    if (stream.oldest_held() > start) return Status::kHistory;
    return make(stream, {start, t + 1, 0, has_final}, formats, due, missing);
  }
  // The first reference step whose window no finished step has completed.
  uint64_t r = start;
  if (references_end >= start + static_cast<uint64_t>(trigger())) {
    const uint64_t completed = references_end - static_cast<uint64_t>(trigger()) - start;
    r = start + (completed / period + 1) * period;
  }
  bool stop = false;
  for (; r < references_end && !stop; r += period) {
    const Status s = end_window(stream, has_final, r, formats, due, missing, stop);
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

// The end, from its reference step, of a window that is to show nothing of the final row that is not there: `hi`, or
// the step after an output whose column the final row lacks.
int64_t ItemRule::whole_hi(const StreamView& stream) const {
  int64_t found = hi;
  for (const RuleOutput& o : outputs) {
    if (stream.has(stream.newest(), o.column)) continue;
    for (const RuleSlice& s : o.slices) found = std::max<int64_t>(found, int64_t{s.end} + 1);
  }
  return found;
}

// A window that the episode's end cuts, or that the final row completes.
Status ItemRule::end_window(const StreamView& stream, bool has_final, uint64_t r,
                            const std::vector<NumberFormat>& formats, std::vector<DueItem>& due, Missing& missing,
                            bool& stop) {
  const uint64_t start = start_of(stream), rows_end = stream.newest() + 1;
  // Where the window wants a next step and the call gave none, the episode counts as one step longer, and that step
  // lacks every column.
  const uint64_t end = rows_end + (wants_final() && !has_final ? 1 : 0);
  const bool is_whole = at_end == AtEnd::kSkip || at_end == AtEnd::kShift;  // padding is for windows that may be cut
  const int64_t needed = is_whole && has_final ? whole_hi(stream) : hi;
  const auto after = [](uint64_t step, int64_t steps) { return step + static_cast<uint64_t>(steps); };
  const uint64_t full = after(r, hi);
  const auto span_to = [&](uint64_t reference, uint64_t to) {
    const uint64_t real = std::min(to, rows_end);
    return Span{reference, real, static_cast<uint32_t>(to - real), has_final && real == rows_end};
  };
  if (after(r, needed) <= end) return make(stream, span_to(r, full), formats, due, missing);
  switch (at_end) {
    case AtEnd::kSkip: stop = true; return Status::kOk;
    case AtEnd::kShorten: return make(stream, span_to(r, end), formats, due, missing);
    case AtEnd::kPad: return make(stream, span_to(r, full), formats, due, missing);
    case AtEnd::kShift: break;
  }
  stop = true;
  const auto first_fit = static_cast<int64_t>(end) - needed;
  if (first_fit < static_cast<int64_t>(start)) {  // longer than the episode: one padded item from its start
    return make(stream, span_to(start, after(start, hi)), formats, due, missing);
  }
  if (static_cast<uint64_t>(first_fit) < pending_made_) return Status::kOk;  // that window was made already
  const auto shifted = static_cast<uint64_t>(first_fit);
  return make(stream, span_to(shifted, after(shifted, hi)), formats, due, missing);
}

Status ItemRule::make(const StreamView& stream, const Span& span, const std::vector<NumberFormat>& formats,
                      std::vector<DueItem>& due, Missing& missing) {
  const uint64_t bound = reach == Reach::kHistory ? stream.oldest_held() : start_of(stream);
  const int64_t origin = static_cast<int64_t>(span.reference) + lo;
  uint32_t before = 0;
  auto first = origin;
  if (first < static_cast<int64_t>(bound)) {
    if (at_start == AtStart::kSkip) return Status::kOk;
    before = static_cast<uint32_t>(static_cast<int64_t>(bound) - first);
    first = static_cast<int64_t>(bound);
  }
  const auto begin = static_cast<uint64_t>(first);
  // A window may end before its reference step; its end may then lie before the stream's first step.
  if (first >= static_cast<int64_t>(span.end)) return Status::kOk;
  if (begin < stream.oldest_held()) return Status::kHistory;
  std::vector<bool> lacking;
  const Status s = find_lacking(stream, begin, span, lacking, missing);
  if (s == Status::kMissingCell && reach == Reach::kHistory && !is_strict)
    return Status::kOk;  // as in Reverb: the pattern is not applied
  if (s != Status::kOk) return s;
  const double p = priority_of(stream, begin, span.end, span.reference, formats);
  if (priority.kind != PriorityKind::kCall && !(p >= 0 && p <= kMaxPriority)) return Status::kBadPriority;
  due.push_back({table, &prepared(lacking), begin, static_cast<uint32_t>(span.end - begin), {before, span.after}, p});
  pending_applied_ = stream.newest() + 1;
  pending_made_ = span.reference + 1;
  return Status::kOk;
}

// Finds the outputs whose cell the final row lacks. kMissingCell if a selected cell of another row is missing.
Status ItemRule::find_lacking(const StreamView& stream, uint64_t first, const Span& span, std::vector<bool>& lacking,
                              Missing& missing) const {
  if (stream.has_all_since(first)) return Status::kOk;
  const uint64_t plain_end = span.ends_with_final ? span.end - 1 : span.end;
  const auto reference = static_cast<int64_t>(span.reference);
  // For outputs that move with the window's end: how far they are from their place in a full window.
  const int64_t moved = static_cast<int64_t>(span.end + span.after) - (reference + hi);
  for (const RuleOutput& o : outputs) {
    for (const RuleSlice& s : o.slices) {
      const int64_t end = reach == Reach::kWholeEpisode ? static_cast<int64_t>(span.end) - reference : s.end;
      for (int64_t off = s.begin; s.step > 0 ? off < end : off > end; off += s.step) {
        const int64_t step = reference + off + (o.moves ? moved : 0);
        if (step < static_cast<int64_t>(first) || step >= static_cast<int64_t>(plain_end)) continue;
        if (stream.has(static_cast<uint64_t>(step), o.column)) continue;
        missing = {static_cast<uint64_t>(step), o.column};
        return Status::kMissingCell;
      }
    }
  }
  if (!span.ends_with_final) return Status::kOk;
  for (const RuleOutput& o : outputs) lacking.push_back(!stream.has(span.end - 1, o.column));
  if (std::none_of(lacking.begin(), lacking.end(), [](bool b) { return b; })) lacking.clear();
  return Status::kOk;
}

PreparedPattern& ItemRule::prepared(const std::vector<bool>& lacking) {
  std::unique_ptr<PreparedPattern>& p = (*patterns_)[lacking];
  if (p != nullptr) return *p;
  Pattern pattern;
  pattern.names = names;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const RuleOutput& o = outputs[i];
    const uint16_t flags =
        static_cast<uint16_t>((o.squeezed ? kSqueezed : 0) | (at_start == AtStart::kRepeat ? kRepeatStart : 0));
    pattern.outputs.push_back({o.column, flags, static_cast<uint32_t>(o.slices.size()),
                               static_cast<uint32_t>(pattern.slices.size()), !lacking.empty() && lacking[i] ? 1u : 0u});
    for (const RuleSlice& s : o.slices) {
      if (reach == Reach::kWholeEpisode) {
        pattern.slices.push_back({0, 0, 1, kEndAtEnd});
      } else if (o.moves) {
        pattern.slices.push_back({s.begin - hi, s.end - hi, s.step, kBeginAtEnd | kEndAtEnd});
      } else {
        pattern.slices.push_back({s.begin - lo, s.end - lo, s.step, 0});
      }
    }
  }
  p = std::make_unique<PreparedPattern>(std::move(pattern));
  return *p;
}

double ItemRule::priority_of(const StreamView& stream, uint64_t first, uint64_t end, uint64_t reference,
                             const std::vector<NumberFormat>& formats) const {
  if (priority.kind == PriorityKind::kCall) return -1;
  if (priority.kind == PriorityKind::kConstant) return priority.value;
  const NumberFormat format = formats[priority.column];
  if (priority.kind == PriorityKind::kColumn) {
    return stream.has(reference, priority.column) ? read_number(stream.cell(reference, priority.column), format) : NAN;
  }
  double largest = 0, sum = 0;
  uint64_t n = 0;
  for (uint64_t step = priority.from_reference ? std::max(first, reference) : first; step < end; ++step) {
    if (!stream.has(step, priority.column)) continue;
    const double d = std::fabs(read_number(stream.cell(step, priority.column), format));
    largest = std::max(largest, d);
    sum += d;
    ++n;
  }
  return n == 0 ? NAN : priority.value * largest + (1 - priority.value) * sum / static_cast<double>(n);
}

}  // namespace shmreplay
