#include "write/rule_writer.h"

#include <algorithm>

#include "items/patterns.h"
#include "items/table_calls.h"

namespace shmreplay {
namespace {

// Whether each item of that rule can lie in one chunk. It must take consecutive steps that fill a chunk, and share none
// of them with the next item, or only the last.
bool fills_chunks(const ItemRule& rule, const Arena& arena) {
  const auto is_in_row = [](const ColumnRecord& c) { return c.flags == 0 || c.flags == kPerItemColumn; };
  if (!rule.is_unroll || rule.lo != 0 || rule.hi < 1 || static_cast<uint32_t>(rule.hi) != arena.geometry().chunk_steps)
    return false;
  const auto steps = static_cast<uint32_t>(rule.hi);
  return (rule.period == steps || rule.period + 1 == steps) &&
         std::all_of(arena.columns().begin(), arena.columns().end(), is_in_row);
}

}  // namespace

// A held-back item waits while the stream goes on by at most `commit_every` steps: that is the stream's slack.
RuleWriter::RuleWriter(Arena& arena, const TableFacts& table, uint32_t history, const WriterFacts& facts,
                       std::vector<ItemRule> rules, uint32_t commit_every)
    : facts_(facts),
      stream_(arena, table, history, commit_every > 1 ? commit_every : 0),
      rules_(std::move(rules)),
      before_(stream_.row().present().size(), 0),
      held_(commit_every) {
  const auto filling =
      std::find_if(rules_.begin(), rules_.end(), [&](const ItemRule& r) { return fills_chunks(r, arena); });
  if (filling == rules_.end()) return;
  stream_.steps().unroll(filling->period, filling->period < arena.geometry().chunk_steps,
                         filling->reach == Reach::kStretch);
}

void RuleWriter::begin(WriterCall call) {
  call_ = call;
  if (stream_.row().is_open()) before_ = stream_.row().present();
  else if (began_open_) before_.assign(before_.size(), 0);
  began_open_ = stream_.row().is_open();
  due_.clear();
  rule_of_.clear();
  num_in_ = 0;
}

// Ends a look: its items are due. Those whose rules give no priority get the call's.
Status RuleWriter::end_look(Status status, double priority) {
  if (status != Status::kOk) {
    take_back();
    return status;
  }
  for (DueItem& due : due_) {
    due.priority = due.priority < 0 ? priority : due.priority;
    if (due.priority < 0) continue;  // the table's default
    if (first_bad_priority(stream_.arena().table(due.table), &due.priority, 1) == kAllGood) continue;
    take_back();
    return Status::kBadPriority;
  }
  keys_.resize(due_.size());
  return Status::kOk;
}

Status RuleWriter::look_at_row(double priority, ItemRule::Missing& missing) {
  Status s = Status::kOk;
  for (size_t i = 0; i < rules_.size() && s == Status::kOk; ++i) {
    s = rules_[i].on_step(stream_.history(), facts_.formats, due_, missing);
    note_rule(static_cast<uint32_t>(i));
  }
  return end_look(s, priority);
}

Status RuleWriter::look_at_end(bool clear_history, double priority, ItemRule::Missing& missing) {
  clears_ = clear_history;
  const bool has_final = stream_.row().is_open();
  Status s = Status::kOk;
  stream_.history().look_at_finished(!has_final);
  for (size_t i = 0; i < rules_.size() && s == Status::kOk && stream_.history().num_steps() > 0; ++i) {
    s = rules_[i].on_end(stream_.history(), has_final, clear_history, facts_.formats, due_, missing);
    note_rule(static_cast<uint32_t>(i));
  }
  stream_.history().look_at_finished(false);
  return end_look(s, priority);
}

Status RuleWriter::look_by(ItemRule& selection, double priority, ItemRule::Missing& missing) {
  Status s = Status::kHistory;
  stream_.history().look_at_finished(!stream_.row().is_open());
  if (stream_.history().num_steps() > 0) s = selection.on_demand(stream_.history(), facts_.formats, due_, missing);
  stream_.history().look_at_finished(false);
  note_rule(0);
  return end_look(s, priority);
}

Status RuleWriter::look_at_span(uint32_t length, double priority, uint32_t table) {
  const uint32_t num_steps = stream_.history().num_steps();
  if (length == 0 || length > num_steps) return end_look(Status::kHistory, priority);
  const uint64_t first = stream_.history().oldest_held() + num_steps - length;
  if (table == kNone) table = stream_.table().index;
  due_.push_back({table, &span_pattern(), first, length, {0, 0}, priority});
  note_rule(0);
  return end_look(Status::kOk, priority);
}

Status RuleWriter::bring_values(const char* bytes, uint64_t num_bytes, const Wait& wait) {
  if (due_.empty()) return Status::kOk;
  return stream_.items().bring_values(due_[0].first, bytes, num_bytes, wait, due_[0].values);
}

Status RuleWriter::hold_back() {
  if (due_.empty()) return Status::kOk;
  // Items that can never go in are reported now, because no later call reports them. The first item of all fixes its
  // table's structure, so where that is not known yet, the items held back before are checked along.
  const Arena& arena = stream_.arena();
  const auto is_known = [&](const DueItem& d) { return arena.table(d.table).record->structure_hash.get() != 0; };
  std::vector<DueRun> runs;
  if (!std::all_of(due_.begin(), due_.end(), is_known)) held_.add_runs(stream_.items(), runs);
  runs.push_back({&stream_.items(), due_.data(), keys_.data(), num_due()});
  if (const Status s = DueInsert(stream_.arena(), runs, Wait{}).find_misfit(); s != Status::kOk) return s;
  held_.add(due_, stream_.history().newest_step());
  due_.clear();
  rule_of_.clear();
  keys_.clear();
  return Status::kOk;
}

Status RuleWriter::publish(const Wait& wait) {
  if (held_.empty()) return Status::kOk;
  std::vector<DueRun> runs;
  held_.add_runs(stream_.items(), runs);
  const Status s = DueInsert(stream_.arena(), runs, wait).run();
  held_.settle(runs);
  return s;
}

Status RuleWriter::insert_with_held(const Wait& wait, bool counted) {
  std::vector<DueRun> runs;
  held_.add_runs(stream_.items(), runs);
  runs.push_back({&stream_.items(), due_.data(), keys_.data(), num_due(), num_in_});
  const Status s = DueInsert(stream_.arena(), runs, wait, counted).run();
  num_in_ = runs.back().done;
  held_.settle(runs);
  return s;
}

Status RuleWriter::insert(std::span<RuleWriter* const> writers, const Wait& wait, size_t& at, bool counted) {
  if (writers.size() == 1 && !writers.front()->held_.empty()) return writers.front()->insert_with_held(wait, counted);
  // Most calls have one stream's items; those take no memory here.
  DueRun one;
  std::vector<DueRun> many;
  std::span<DueRun> runs{&one, 1};
  if (writers.size() > 1) {
    many.resize(writers.size());
    runs = many;
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    RuleWriter& w = *writers[i];
    runs[i] = {&w.stream_.items(), w.due_.data(), w.keys_.data(), w.num_due(), w.num_in_};
  }
  DueInsert insert(writers.front()->stream_.arena(), runs, wait, counted);
  const Status s = insert.run();
  at = insert.at();
  for (size_t i = 0; i < writers.size(); ++i) writers[i]->num_in_ = runs[i].done;
  return s;
}

void RuleWriter::hand_over(std::vector<DueItem>& to) {
  to.insert(to.end(), due_.begin(), due_.end());
  due_.clear();
  rule_of_.clear();
}

bool RuleWriter::conclude() {
  if (num_in_ < num_due()) {
    postpone();
    return false;
  }
  unfinished_ = WriterCall::kNothing;
  stream_.items().end_values(true);
  if (call_ == WriterCall::kItem) return true;
  for (ItemRule& rule : rules_) rule.applied();
  if (call_ == WriterCall::kAppend) {
    note_end();
    stream_.finish_row();
  } else {
    stream_.end_episode(clears_);
    ended_ = terminated_now_ = false;
  }
  return true;
}

void RuleWriter::postpone() {
  unfinished_ = num_in_ == 0 ? WriterCall::kNothing : call_;
  if (num_in_ == 0) take_back();
}

void RuleWriter::take_back() {
  for (ItemRule& rule : rules_) rule.forget();
  stream_.items().end_values(false);
  if (call_ != WriterCall::kItem) stream_.row().restore(before_);
  due_.clear();
  rule_of_.clear();
  num_in_ = 0;
}

// A step that is both terminated and truncated counts as terminated: what would come after it does not matter.
void RuleWriter::note_end() noexcept {
  terminated_now_ = false;
  for (const uint32_t c : facts_.end_columns) {
    if (!stream_.row().has(c) || *stream_.row().cell(c) == 0) continue;
    ended_ = true;
    terminated_now_ |= static_cast<int>(c) != facts_.truncated;
  }
}

PreparedPattern& RuleWriter::span_pattern() {
  const auto num_columns = static_cast<uint32_t>(facts_.formats.size());
  std::vector<bool> lacking;
  if (stream_.row().is_open() && stream_.row().lacks_any()) {
    for (uint32_t c = 0; c < num_columns; ++c) lacking.push_back(!stream_.row().has(c));
  }
  auto& prepared = span_patterns_[lacking];
  if (prepared == nullptr)
    prepared = std::make_unique<PreparedPattern>(whole_step_pattern(stream_.arena(), false, lacking));
  return *prepared;
}

}  // namespace shmreplay
