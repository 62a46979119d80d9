#include "support/fixtures.h"
#include "arena/formatter.h"
#include "base/process.h"
#include "items/check.h"

#include <cfloat>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "write/due_insert.h"

namespace shmreplay::test {

// ---- specs -------------------------------------------------------------------------------------------------------

TableSpec open_table(const std::string& name, uint32_t max_size, uint32_t sampler, uint32_t remover) {
  TableSpec t;
  t.name = name;
  t.max_size = max_size;
  t.sampler = sampler;
  t.remover = remover;
  t.min_diff = -DBL_MAX;
  t.max_diff = DBL_MAX;
  return t;
}

TableSpec queue_table(const std::string& name, uint32_t max_size) {
  TableSpec t = open_table(name, max_size, kFifo, kFifo);
  t.max_times_sampled = 1;
  t.min_diff = 0;
  t.max_diff = max_size;
  t.count_deletes = true;
  return t;
}

ArenaSpec arena_of(std::vector<TableSpec> tables, uint32_t chunk_steps, uint32_t num_chunks) {
  ArenaSpec s;
  s.columns = {{8, 0}, {24, 0}, {3, 0}};
  s.chunk_steps = chunk_steps;
  s.num_chunks = num_chunks;
  s.max_streams = 16;
  s.max_sessions = 8;
  s.specs = "opaque";
  s.tables = std::move(tables);
  return s;
}

ArenaSpec with_values(ArenaSpec s, uint32_t num_blocks, uint32_t block_bytes) {
  s.columns.insert(s.columns.end(), {{0, kHeapColumn}, {13, kMutableColumn}, {0, kHeapColumn}, {0, kPerItemColumn}});
  s.num_blocks = num_blocks;
  s.block_bytes = block_bytes;
  return s;
}

// ---- arenas ------------------------------------------------------------------------------------------------------

Segments::Segments(const ArenaSpec& spec, bool published) {
  const Plan plan = plan_arena(spec);
  index_fd = memfd_create("index", MFD_CLOEXEC);
  data_fd = memfd_create("data", MFD_CLOEXEC);
  CHECK(index_fd >= 0 && data_fd >= 0);
  CHECK_EQ(ftruncate(index_fd, static_cast<off_t>(plan.index_bytes)), 0);
  CHECK_EQ(ftruncate(data_fd, static_cast<off_t>(plan.data_bytes)), 0);
  Formatter(index_fd, data_fd, spec).run("native", "tests", published);
}

Segments::~Segments() {
  close(index_fd);
  close(data_fd);
}

std::unique_ptr<Arena> Segments::attach(uint32_t session, uint32_t generation) const {
  return std::make_unique<Arena>(index_fd, data_fd, session, generation);
}

SessionInfo open_own_session(Arena& daemon) {
  const auto pid = static_cast<uint32_t>(getpid());
  SessionInfo info{};
  CHECK_EQ(open_session(daemon, pid, process_start_time(pid), 0, kWhatever, info), Status::kOk);
  return info;
}

World::World(const ArenaSpec& spec) : segments(spec), daemon(segments.attach()), own(client()), arena(*own) {}

std::unique_ptr<Arena> World::client() {
  const SessionInfo info = open_own_session(*daemon);
  return segments.attach(info.index, info.generation);
}

void check_healthy(Arena& arena) {
  std::vector<std::string> faults;
  CHECK_EQ(check_invariants(arena, kWhatever, faults), Status::kOk);
  if (!faults.empty()) fail(__FILE__, __LINE__, "the arena is not healthy: " + faults.front());
}

uint32_t find_item(Arena& arena, const TableFacts& table, int64_t key) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return shmreplay::find_item(hold, table, key);
}

uint64_t live_items(const TableFacts& table) { return table.record->size.get(); }

// ---- rows and patterns -------------------------------------------------------------------------------------------

void fill_cell(char* to, uint32_t row_bytes, uint64_t serial) {
  for (uint32_t at = 0; at < row_bytes; at += 8) {
    std::memcpy(to + at, &serial, row_bytes - at < 8 ? row_bytes - at : 8);
  }
}

bool cell_shows(const char* cell, uint32_t row_bytes, uint64_t serial) {
  for (uint32_t at = 0; at < row_bytes; at += 8) {
    if (std::memcmp(cell + at, &serial, row_bytes - at < 8 ? row_bytes - at : 8) != 0) return false;
  }
  return true;
}

void write_row(StreamWriter& writer, Arena& arena, uint64_t serial) {
  if (arena.geometry().num_blocks > 0) CHECK_EQ(secure_row(writer, arena, serial, kNow), Status::kOk);
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    const ColumnRecord& column = arena.columns()[c];
    if (column.flags == kPerItemColumn) continue;
    const std::string value = value_of(serial, c);
    if (column.flags != kHeapColumn) fill_cell(writer.row().cell(c), column.row_bytes, serial);
    else if (is_none(serial, c)) writer.row().write_no_value(c);
    else writer.row().write_value(c, value.data(), static_cast<uint32_t>(value.size()));
    writer.row().mark(c);
  }
}

uint64_t blocks_of_row(const Arena& arena, uint64_t serial) {
  uint64_t blocks = 0;
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    if (arena.columns()[c].flags == kHeapColumn && !is_none(serial, c))
      blocks += blocks_of(arena, value_of(serial, c).size());
  }
  return blocks;
}

Status secure_row(StreamWriter& writer, Arena& arena, uint64_t serial, const Wait& wait) {
  return writer.secure_blocks(blocks_of_row(arena, serial), wait);
}

bool is_none(uint64_t serial, uint32_t column) { return (serial + column) % 5 == 0; }

std::string value_of(uint64_t serial, uint32_t column) {
  std::string value((serial * 37 + column * 11) % 401, 0);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(serial + 7 * i + column);
  return value;
}

std::string item_value(uint64_t first_serial) {
  return "of " + std::to_string(first_serial) + value_of(first_serial, 99);
}

Slice whole_span() { return {0, 0, 1, kEndAtEnd}; }

Slice from_to(int32_t begin, int32_t end, int32_t step) { return {begin, end, step, 0}; }

namespace {
Pattern pattern_of(const Arena& arena, uint16_t flags, const Slice& slice) {
  Pattern p;
  for (uint16_t c = 0; c < arena.geometry().num_columns; ++c) {
    const bool per_item = arena.columns()[c].flags == kPerItemColumn;
    p.outputs.push_back(
        {c, per_item ? kSqueezed : flags, per_item ? 0u : 1u, static_cast<uint32_t>(p.slices.size()), 0});
    if (!per_item) p.slices.push_back(slice);
  }
  return p;
}
}  // namespace

Pattern one_step_pattern(const Arena& arena) { return pattern_of(arena, kSqueezed, from_to(0, 1)); }

Pattern whole_pattern(const Arena& arena) { return pattern_of(arena, 0, whole_span()); }

Status insert_due(StreamWriter& writer, DueItem* due, uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done) {
  DueRun run{&writer.items(), due, keys, n};
  const Status s = DueInsert(writer.arena(), {&run, 1}, wait).run();
  done = run.done;
  return s;
}

Status create_item(StreamWriter& writer, const TableFacts& table, PreparedPattern& pattern, uint32_t length,
                   double priority, const Wait& wait, int64_t& key, BlockRef values) {
  DueItem due{table.index, &pattern, first_of(writer, length), length, {0, 0}, priority, values};
  uint32_t done = 0;
  return insert_due(writer, &due, 1, wait, &key, done);
}

uint64_t first_of(const StreamWriter& writer, uint32_t length) {
  return writer.history().oldest_held() + writer.history().num_steps() - length;
}

// ---- callers -----------------------------------------------------------------------------------------------------

Actor::Actor(Arena& arena, const TableFacts& table, uint32_t history, uint64_t first_serial)
    : writer(arena, table, history),
      step(one_step_pattern(arena)),
      span(whole_pattern(arena)),
      arena_(arena),
      table_(table),
      serial_(first_serial) {
  CHECK_EQ(writer.open(kWhatever), Status::kOk);
}

Status Actor::try_insert(double priority, const Wait& wait, int64_t& key) {
  if (const Status s = writer.ensure_row(wait); s != Status::kOk) return s;
  const bool has_values = arena_.geometry().num_blocks > 0;
  const std::string brought = item_value(serial_);
  BlockRef values = kNoValue;
  if (has_values) {
    writer.row().give_up_values();
    writer.row().restore(std::vector<uint64_t>(writer.row().present().size(), 0));
    if (const Status s = secure_row(writer, arena_, serial_, wait); s != Status::kOk) return s;
  }
  if (!writer.row().is_open()) write_row(writer, arena_, serial_);
  if (arena_.has_values()) {
    if (const Status s = writer.secure_blocks(blocks_of(arena_, brought.size()), wait); s != Status::kOk) return s;
    values = writer.row().write_item_value(brought.data(), static_cast<uint32_t>(brought.size()));
  }
  uint32_t done = 0;
  const Status s = writer.items().insert_rows(table_, step, &priority, 1, wait, &key, done, {false, true, &values});
  if (s == Status::kOk) ++serial_;
  return s;
}

Status Actor::try_create(const TableFacts& table, uint32_t length, double priority, const Wait& wait, int64_t& key) {
  BlockRef values = kNoValue;
  if (arena_.has_values() && length <= writer.history().num_steps()) {
    const std::string brought = item_value(serial_ - length);
    const Status s =
        writer.items().bring_values(first_of(writer, length), brought.data(), brought.size(), wait, values);
    if (s != Status::kOk) return s;
  }
  const Status s = create_item(writer, table, span, length, priority, wait, key, values);
  writer.items().end_values(s == Status::kOk);
  return s;
}

int64_t Actor::insert(double priority) {
  int64_t key = 0;
  CHECK_EQ(try_insert(priority, kNow, key), Status::kOk);
  return key;
}

void Actor::append() {
  CHECK_EQ(writer.ensure_row(kWhatever), Status::kOk);
  CHECK_EQ(secure_row(writer, arena_, serial_, kWhatever), Status::kOk);
  write_row(writer, arena_, serial_++);
  writer.finish_row();
}

int64_t Actor::create_in(const TableFacts& table, uint32_t length, double priority) {
  int64_t key = 0;
  CHECK_EQ(try_create(table, length, priority, kNow, key), Status::kOk);
  return key;
}

int64_t Actor::create(uint32_t length, double priority) { return create_in(table_, length, priority); }

Batch::Batch(const Arena& arena, int64_t num_items)
    : picks(static_cast<size_t>(num_items)),
      arena_(arena),
      num_items_(num_items),
      item_sizes_(static_cast<size_t>(num_items), -2),
      values_{item_sizes_.data(), {}} {}

void Batch::grow(size_t o, uint32_t rows, int64_t filled) {
  OutputBuffer& out = outputs_[o];
  const OutputBuffer old = out;
  out.rows = rows;
  std::vector<char> data(static_cast<size_t>(num_items_) * rows * out.row_bytes,
                         static_cast<char>(out.bytes != nullptr ? -1 : 0));
  std::vector<uint8_t> mask(static_cast<size_t>(num_items_) * rows, 1);
  out.data = data.data();
  for (int64_t i = 0; i < filled; ++i) {
    for (uint32_t j = 0; j < rows; ++j) {
      if (j < old.rows) std::memcpy(out.row(i, j), old.row(i, j), out.row_bytes);
      mask[out.place(i, j)] = j < old.rows && (masks_[o].empty() || masks_[o][old.place(i, j)] != 0) ? 1 : 0;
    }
  }
  if (filled > 0) masks_[o] = mask;
  data_[o] = std::move(data);
}

bool Batch::prepare(const Pattern& structure, const uint32_t* rows, int64_t filled) noexcept {
  if (refuses) return false;
  if (outputs_.empty()) {
    for (uint32_t o = 0; only.empty() && o < structure.outputs.size(); ++o) all_.push_back(o);
    const std::vector<uint32_t>& numbers = only.empty() ? all_ : only;
    data_.resize(numbers.size());
    masks_.resize(numbers.size());
    lengths_.assign(numbers.size(), std::vector<int32_t>(static_cast<size_t>(num_items_), -1));
    for (size_t o = 0; o < numbers.size(); ++o) {
      const PatternOutput& rule = structure.outputs[numbers[o]];
      const ColumnRecord& column = arena_.columns()[rule.column];
      const bool is_packed = column.packed_bytes > 0;
      bytes_.push_back(column.flags == kHeapColumn && !is_packed ? std::make_unique<ByteBuffer>() : nullptr);
      packed_.push_back(is_packed ? std::make_unique<PackedReader>(column.packed_bytes) : nullptr);
      outputs_.push_back({numbers[o], rule.column, 0, is_packed ? column.packed_bytes : column.row_bytes,
                          (rule.flags & kSqueezed) != 0, nullptr, &masks_[o], num_items_, lengths_[o].data(),
                          time_major, column.flags, bytes_.back().get(), packed_.back().get()});
    }
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (rows[outputs_[o].output] > outputs_[o].rows) grow(o, rows[outputs_[o].output], filled);
  }
  done_ = filled;
  return true;
}

const char* Batch::cell(size_t o, int64_t item, uint32_t row) const { return outputs_[o].row(item, row); }

uint64_t Batch::serial(int64_t item, uint32_t row) const {
  uint64_t s;
  std::memcpy(&s, cell(0, item, row), 8);
  return s;
}

bool Batch::real(size_t o, int64_t item, uint32_t row) const {
  return masks_[o].empty() || masks_[o][outputs_[o].place(item, row)] != 0;
}

void Batch::check_rows() const {
  for (int64_t i = 0; i < num_items_; ++i) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].bytes != nullptr) continue;
      for (uint32_t j = 0; j < outputs_[o].rows; ++j) {
        if (!real(o, i, j)) continue;
        if (cell_shows(cell(o, i, j), outputs_[o].row_bytes, serial(i, j))) continue;
        fail(__FILE__, __LINE__, "item " + shown(i) + ", output " + shown(o) + ", row " + shown(j) + " is torn");
      }
    }
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o].bytes != nullptr) check_values(o);
  }
  if (!arena_.has_values()) return;
  const std::vector<std::optional<std::string>> brought = items_values();
  for (int64_t i = 0; i < delivered_; ++i) {
    CHECK(brought[static_cast<size_t>(i)].has_value());
    if (*brought[static_cast<size_t>(i)] != item_value(serial(i, 0)))
      fail(__FILE__, __LINE__,
           "item " + shown(i) + " brought " + brought[static_cast<size_t>(i)]->substr(0, 20) + ", is " +
               shown(serial(i, 0)));
  }
}

namespace {
std::vector<std::optional<std::string>> cut(const std::vector<int64_t>& sizes, const ByteBuffer& bytes) {
  std::vector<std::optional<std::string>> values;
  size_t at = 0;
  for (const int64_t size : sizes) {
    CHECK(size >= -1);
    values.emplace_back();
    if (size >= 0) values.back() = std::string(bytes.data() + at, static_cast<size_t>(size));
    at += static_cast<size_t>(std::max<int64_t>(size, 0));
  }
  CHECK_EQ(at, bytes.size());
  return values;
}
}  // namespace

std::vector<std::optional<std::string>> Batch::values(size_t o) const {
  std::vector<int64_t> sizes(static_cast<size_t>(delivered_) * outputs_[o].rows);
  std::memcpy(sizes.data(), data_[o].data(), sizes.size() * 8);
  return cut(sizes, *outputs_[o].bytes);
}

std::vector<std::optional<std::string>> Batch::items_values() const {
  return cut({item_sizes_.begin(), item_sizes_.begin() + delivered_}, values_.bytes);
}

void Batch::check_values(size_t o) const {
  const std::vector<std::optional<std::string>> have = values(o);
  for (int64_t i = 0; i < delivered_; ++i) {
    for (uint32_t j = 0; j < outputs_[o].rows; ++j) {
      const auto& value = have[static_cast<size_t>(i) * outputs_[o].rows + j];
      const bool there = real(o, i, j) && !is_none(serial(i, j), outputs_[o].column);
      CHECK_EQ(value.has_value(), there);
      if (there) CHECK(*value == value_of(serial(i, j), outputs_[o].column));
    }
  }
}

SampleResult Learner::sample(const TableFacts& table, uint32_t n, Batch& batch, const Wait& wait, bool count,
                             uint32_t at_least) {
  std::vector<double> uniforms(n);
  for (double& u : uniforms) u = random_.uniform();
  const SampleOptions options{n, at_least == UINT32_MAX ? n : at_least, count, uniforms.data()};
  return call.sample(table, options, wait, batch);
}

Pick Learner::draw(const TableFacts& table, bool count) {
  Batch batch(arena_, 1);
  CHECK_EQ(sample(table, 1, batch, kNow, count).status, Status::kOk);
  return batch.picks[0];
}

bool Listener::interrupted() noexcept {
  ++asked;
  return interrupt;
}

void Listener::lock_stuck(uint32_t pid, int64_t seconds) noexcept {
  stuck_pid = pid;
  stuck_seconds = seconds;
}

// ---- processes and threads ---------------------------------------------------------------------------------------

Child::Child(const std::function<void()>& body) {
  const pid_t parent = getpid();
  pid_ = fork();
  CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(2);
  int code = 0;
  try {
    body();
  } catch (const std::exception& e) {
    fprintf(stderr, "\n    in a child: %s\n", e.what());
    code = 1;
  }
  _exit(code);
}

Child::~Child() {
  if (reaped_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int Child::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) CHECK_EQ(errno, EINTR);
  reaped_ = true;
  return status;
}

void Child::join() {
  const int status = wait();
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

bool Child::killed() {
  const int status = wait();
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  return false;
}

void Child::stop() {
  send(SIGSTOP);
  int status = 0;
  CHECK_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  CHECK(WIFSTOPPED(status));
}

void Child::send(int signal) const { CHECK_EQ(kill(pid_, signal), 0); }

void run_threads(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::thread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back([&body] {
      try {
        body();
      } catch (const std::exception& e) {
        printf("\n    FAILED %s\n", e.what());
        fflush(stdout);
        _exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void until(const std::function<bool()>& condition) {
  while (!condition()) sched_yield();
}

uint32_t sleepers(const TableFacts& table, Side side) { return table.record->sides[side].sleepers.get(); }

void consume_what_a_full_queue_holds_up(World& w, uint64_t n) {
  const auto writer = [&] {
    Actor actor(w.arena, w.table());
    int64_t key = 0;
    for (uint64_t i = 0; i < n; ++i) CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kOk);
  };
  const auto consumer = [&] {
    until([&] { return w.arena.state().chunk_waiters.load() != 0; });
    Learner learner(w.arena);
    uint64_t next = 1;
    while (next <= n) {
      Batch batch(w.arena, 7);
      const SampleResult r = learner.sample(w.table(), 7, batch, kWhatever, true, 1);
      CHECK_EQ(r.status, Status::kOk);
      batch.check_rows();
      for (uint32_t i = 0; i < r.done; ++i) CHECK_EQ(batch.serial(i), next++);
    }
  };
  run_threads({writer, consumer});
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
