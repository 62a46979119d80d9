// What the native tests build on: arenas in memfds, rows that prove themselves, a sink that keeps what it got, child
// processes.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <type_traits>
#include <vector>

#include "items/table_calls.h"
#include "read/sample_call.h"
#include "sessions/sessions.h"
#include "support/harness.h"
#include "write/stream_writer.h"

namespace shmreplay::test {

inline const Wait kNow{0};
inline const Wait kWhatever{};  // waits for ever; the watchdog ends it

// ---- specs -------------------------------------------------------------------------------------------------------

// A table whose limiter admits everything as soon as there is an item.
TableSpec open_table(const std::string& name, uint32_t max_size, uint32_t sampler = kUniform, uint32_t remover = kFifo);

// Like Table.queue: Fifo, Fifo, each item sampled once, at most `max_size` unsampled items.
TableSpec queue_table(const std::string& name, uint32_t max_size);

// Three columns: a serial number (8 bytes), three words (24) and three odd bytes (3).
ArenaSpec arena_of(std::vector<TableSpec> tables, uint32_t chunk_steps = 4, uint32_t num_chunks = 64);

// The same, with two heap columns, a mutable column (13 bytes) and a per-item column.
ArenaSpec with_values(ArenaSpec spec, uint32_t num_blocks, uint32_t block_bytes = 64);

// ---- arenas ------------------------------------------------------------------------------------------------------

// The two segments of a fresh arena, in memory that ends with this object.
class Segments {
 public:
  explicit Segments(const ArenaSpec& spec, bool published = true);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  std::unique_ptr<Arena> attach(uint32_t session = kNone, uint32_t generation = 0) const;

  int index_fd = -1, data_fd = -1;
};

// Segments, the daemon's view of them, and the view of a client that has a session of this process.
class World {
 public:
  explicit World(const ArenaSpec& spec);

  // Opens a further session of this process, as another client would have it.
  std::unique_ptr<Arena> client();

  Segments segments;
  std::unique_ptr<Arena> daemon;
  std::unique_ptr<Arena> own;
  Arena& arena;  // *own
  const TableFacts& table(uint32_t i = 0) const { return own->table(i); }
};

SessionInfo open_own_session(Arena& daemon);

// Checks that check_invariants() finds nothing.
void check_healthy(Arena& arena);

uint64_t live_items(const TableFacts& table);

// The live item of that key, or kNone, in a hold of its own.
uint32_t find_item(Arena& arena, const TableFacts& table, int64_t key);

// Writes a word without the log, as damage would.
template <class T>
void poke(Word<T>& word, std::type_identity_t<T> value) {
  std::memcpy(static_cast<void*>(&word), &value, sizeof value);
}

// ---- rows and patterns -------------------------------------------------------------------------------------------

// Writes bytes that only `serial` gives to every column of the writer's open row.
void write_row(StreamWriter& writer, Arena& arena, uint64_t serial);
// How many blocks a row of that serial takes; and secures them, as a call that writes the row would do first.
uint64_t blocks_of_row(const Arena& arena, uint64_t serial);
Status secure_row(StreamWriter& writer, Arena& arena, uint64_t serial, const Wait& wait);
// The bytes of a heap column for that serial: 0 to 400 bytes. `is_none`: for some serials there is no value.
std::string value_of(uint64_t serial, uint32_t column);
bool is_none(uint64_t serial, uint32_t column);
std::string item_value(uint64_t first_serial);  // what an item brings whose first step has that serial
void fill_cell(char* to, uint32_t row_bytes, uint64_t serial);
bool cell_shows(const char* cell, uint32_t row_bytes, uint64_t serial);

Slice whole_span();  // [0 : end]
Slice from_to(int32_t begin, int32_t end, int32_t step = 1);
Pattern one_step_pattern(const Arena& arena);  // every column, squeezed
Pattern whole_pattern(const Arena& arena);     // every column, the whole span

// For one writer. insert_due(): what a DueInsert of its items does. create_item(): makes an item of its newest `length`
// steps. first_of(): the number of the first of these steps.
Status insert_due(StreamWriter& writer, DueItem* due, uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done);
Status create_item(StreamWriter& writer, const TableFacts& table, PreparedPattern& pattern, uint32_t length,
                   double priority, const Wait& wait, int64_t& key, BlockRef values = kNoValue);
uint64_t first_of(const StreamWriter& writer, uint32_t length);

// ---- callers -----------------------------------------------------------------------------------------------------

// One writer with its serial numbers.
class Actor {
 public:
  Actor(Arena& arena, const TableFacts& table, uint32_t history = 0, uint64_t first_serial = 1);

  // Inserts one row as an item of its own. Answers its key; the test fails if it does not go in.
  int64_t insert(double priority = 1.0);
  Status try_insert(double priority, const Wait& wait, int64_t& key);

  // Writes one more step of the stream, without an item.
  void append();

  Status try_create(const TableFacts& table, uint32_t length, double priority, const Wait& wait, int64_t& key);
  // Makes an item of the newest `length` steps.
  int64_t create(uint32_t length, double priority = 1.0);
  int64_t create_in(const TableFacts& table, uint32_t length, double priority = 1.0);

  uint64_t next_serial() const { return serial_; }
  StreamWriter writer;
  PreparedPattern step, span;

 private:
  Arena& arena_;
  const TableFacts& table_;
  uint64_t serial_;
};

// Keeps a batch as it was delivered.
class Batch final : public BatchSink {
 public:
  Batch(const Arena& arena, int64_t num_items);
  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t filled) noexcept override;
  std::vector<OutputBuffer>& outputs() noexcept override { return outputs_; }
  void describe(int64_t first, const Pick* drawn, uint32_t n) noexcept override {
    std::copy_n(drawn, n, picks.begin() + static_cast<std::ptrdiff_t>(first));
    delivered_ = first + n;
  }
  ItemValues* item_values() noexcept override { return arena_.has_values() ? &values_ : nullptr; }

  const char* cell(size_t output, int64_t item, uint32_t row = 0) const;
  uint64_t serial(int64_t item, uint32_t row = 0) const;       // what column 0 shows
  bool real(size_t output, int64_t item, uint32_t row) const;  // by the mask
  int32_t length(size_t output, int64_t item) const { return lengths_[output][static_cast<size_t>(item)]; }
  uint32_t rows(size_t output) const { return outputs_[output].rows; }
  // Checks that every column of every real row shows the serial of column 0, and that each item has what it brought.
  void check_rows() const;
  // The values of a heap output, row by row; and those that the delivered items brought. nullopt: no value.
  std::vector<std::optional<std::string>> values(size_t output) const;
  std::vector<std::optional<std::string>> items_values() const;

  std::vector<Pick> picks;
  bool refuses = false;        // prepare() answers false
  bool time_major = false;     // set before the first prepare(), as is:
  std::vector<uint32_t> only;  // numbers of the outputs to show; empty: all

 private:
  void grow(size_t output, uint32_t rows, int64_t filled);
  void check_values(size_t output) const;
  const Arena& arena_;
  int64_t num_items_;
  int64_t done_ = 0, delivered_ = 0;
  std::vector<uint32_t> all_;
  std::vector<OutputBuffer> outputs_;
  std::vector<std::vector<char>> data_;
  std::vector<std::vector<uint8_t>> masks_;
  std::vector<std::vector<int32_t>> lengths_;
  std::vector<std::unique_ptr<ByteBuffer>> bytes_;
  std::vector<std::unique_ptr<PackedReader>> packed_;
  std::vector<int64_t> item_sizes_;
  ItemValues values_;
};

// Samples, with random numbers of its own.
class Learner {
 public:
  explicit Learner(Arena& arena, uint64_t seed_ = 1) : call(arena), arena_(arena), random_(seed_) {}
  SampleResult sample(const TableFacts& table, uint32_t n, Batch& batch, const Wait& wait = kNow, bool count = true,
                      uint32_t at_least = UINT32_MAX);
  // Draws one item and answers its descriptor; the test fails if none is admitted.
  Pick draw(const TableFacts& table, bool count = true);

  SampleCall call;

 private:
  Arena& arena_;
  Random random_;
};

// Counts what a wait told its caller. Interrupts the wait when asked to.
class Listener final : public Patience {
 public:
  bool interrupted() noexcept override;
  void lock_stuck(uint32_t pid, int64_t seconds) noexcept override;
  void still_blocked(int64_t seconds) noexcept override { blocked_seconds = seconds; }
  bool interrupt = false;
  uint32_t stuck_pid = 0;
  int64_t stuck_seconds = 0, blocked_seconds = 0, asked = 0;
};

// ---- processes and threads ---------------------------------------------------------------------------------------

// A forked process that runs `body` and ends with 0, or with 1 and a message if a check failed.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();  // kills and reaps
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int wait();     // its wait status
  void join();    // waits; fails the test unless it ended with 0
  bool killed();  // waits; ended by SIGKILL (true) or with 0 (false); anything else fails the test
  void stop();    // SIGSTOP, and waits until it has stopped
  void send(int signal) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

// Runs each body in a thread. The first failure ends the program: the other threads may wait for the one that failed.
void run_threads(const std::vector<std::function<void()>>& bodies);

// Gives the processor away until the condition holds. If it never does, the watchdog ends the test.
void until(const std::function<bool()>& condition);

uint32_t sleepers(const TableFacts& table, Side side);

// One thread inserts `n` items into the queue, which are more than it has room for. Another thread begins to consume
// when the first waits for room, and gets all items in order.
void consume_what_a_full_queue_holds_up(World& w, uint64_t n);

}  // namespace shmreplay::test
