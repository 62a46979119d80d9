#include "arena/arena.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena/huge_pages.h"
#include "base/host_identity.h"
#include "base/limits.h"

namespace shmreplay {
namespace {

std::atomic<uint64_t> fork_epoch{0};

// Relaxed: the child has one thread when the handler runs.
void note_fork() { fork_epoch.fetch_add(1, std::memory_order_relaxed); }
const int fork_handler_installed = pthread_atfork(nullptr, nullptr, note_fork);

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// A name from the segment, for comparisons and messages. A damaged name must not break the message that quotes it.
template <size_t N>
std::string bounded(const char (&text)[N]) {
  std::string name(text, strnlen(text, N));
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name;
}

uint64_t file_bytes(int fd, const char* which) {
  struct stat st;
  if (fstat(fd, &st) != 0) {
    throw refused(errno, std::string(which) + " segment: its size cannot be read");
  }
  return static_cast<uint64_t>(st.st_size);
}

char* map_shared(int fd, uint64_t bytes, const char* which) {
  void* p = map_aligned(fd, 0, bytes);
  if (p == MAP_FAILED) {
    throw refused(errno, std::string(which) + " segment: its " + std::to_string(bytes) + " bytes cannot be mapped");
  }
  return static_cast<char*>(p);
}

void expect(bool ok, const std::string& what) {
  if (!ok) throw AttachError(AttachError::Kind::kLayout, what);
}

// Whether this process gets that much memory, as far as the kernel says so before it is used (RLIMIT_AS, overcommit).
bool can_allocate(uint64_t bytes) noexcept {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, bytes);
  return true;
}

// The plan bounds a packed row by what the heap can hold of it, which may be more than there is memory.
void check_packed_rows(const std::vector<ColumnRecord>& columns) {
  uint64_t bytes = 0;
  for (const ColumnRecord& c : columns) bytes += kPackedRowsInMemory * c.packed_bytes;
  if (bytes == 0 || can_allocate(bytes)) return;
  const std::string needed =
      "index segment: reading and writing its packed columns takes " + std::to_string(bytes) + " bytes of memory";
  // Under a limit of its own, the process cannot tell a healthy arena from one whose header is damaged.
  if (address_space_is_limited()) throw refused(ENOMEM, needed);
  expect(false, needed + ", which this process does not get; or its header is damaged");
}

// Returns how many bytes there are of those asked for. An offset that no file can have is behind the end.
size_t read_at(int index_fd, char* bytes, size_t size, uint64_t offset) {
  if (offset > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) return 0;
  const ssize_t got = pread(index_fd, bytes, size, static_cast<off_t>(offset));
  if (got < 0 && errno == EINVAL) return 0;  // the offset and the size together pass the largest one
  if (got < 0) throw refused(errno, "index segment: its header cannot be read");
  return static_cast<size_t>(got);
}

bool region_fits(uint64_t offset, uint64_t element_bytes, uint64_t count, uint64_t total) {
  return offset % 128 == 0 && offset <= total && (count == 0 || element_bytes <= (total - offset) / count);
}

}  // namespace

void corrupt(const char* what) { throw CorruptIndex(what); }

Arena::Arena(int index_fd, int data_fd, uint32_t session, uint32_t generation, bool published)
    : session_(session),
      generation_(generation),
      pid_(static_cast<uint32_t>(getpid())),
      // Relaxed: only this process's forks change it.
      fork_epoch_(fork_epoch.load(std::memory_order_relaxed)) {
  try {
    map(index_fd, data_fd);
    check_header(published);
    copy_facts();
    populate();
  } catch (...) {
    if (index_ != nullptr) munmap(index_, index_bytes_);
    if (data_ != nullptr) munmap(data_, data_bytes_);
    throw;
  }
}

Arena::~Arena() {
  munmap(index_, index_bytes_);
  munmap(data_, data_bytes_);
}

void Arena::publish() const { header().ready.store(1, std::memory_order_release); }  // SYNC POINT with check_header

bool Arena::forked() const { return fork_epoch.load(std::memory_order_relaxed) != fork_epoch_; }

void Arena::map(int index_fd, int data_fd) {
  index_bytes_ = file_bytes(index_fd, "index");
  data_bytes_ = file_bytes(data_fd, "data");
  expect(index_bytes_ >= 4096 && data_bytes_ > 0,
         "index segment: too small to be one of ours (" + std::to_string(index_bytes_) + " bytes); was it truncated?");
  index_ = map_shared(index_fd, index_bytes_, "index");
  data_ = map_shared(data_fd, data_bytes_, "data");
}

void Arena::check_header(bool published) const {
  const Header& h = header();
  expect(h.magic == kMagic, "index segment: not a shmreplay segment (magic " + hex(h.magic) + ")");
  // SYNC POINT with Formatter and publish(): `ready` is stored last, with release, so everything before it is complete
  // when it is seen.
  expect(h.ready.load(std::memory_order_acquire) == (published ? 1u : 0u),
         published ? "index segment: its daemon died before it was ready" : "index segment: it is in use already");
  expect(h.layout_version == kLayoutVersion && h.layout_hash == shmreplay::layout_hash(),
         "index segment: layout " + std::to_string(h.layout_version) + "/" + hex(h.layout_hash) + ", this build has " +
             std::to_string(kLayoutVersion) + "/" + hex(shmreplay::layout_hash()) +
             "; daemon and clients must be of the same shmreplay version and C library");
  expect(h.index_bytes == index_bytes_ && h.data_bytes == data_bytes_,
         "segments of " + std::to_string(index_bytes_) + " and " + std::to_string(data_bytes_) +
             " bytes, the header says " + std::to_string(h.index_bytes) + " and " + std::to_string(h.data_bytes) +
             "; were they truncated?");
  expect(bounded(h.boot_id) == boot_id(), "index segment: made before the last boot");
  expect(h.pid_namespace == namespace_inode("pid"),
         "index segment: made in another pid namespace; the kernel finds a dead lock owner by its thread id, so daemon "
         "and clients must share one (docker run --pid=host, or shareProcessNamespace: true in a pod)");
  expect(h.time_namespace == namespace_inode("time"),
         "index segment: made in another time namespace; daemon and clients must share one, because a process is told "
         "from "
         "a later one with its pid by its start time, which differs between time namespaces");
  if (failed()) {
    throw AttachError(AttachError::Kind::kFailed,
                      "arena '" + bounded(h.name) + "' is marked failed: its index is damaged");
  }
}

void Arena::copy_facts() {
  const Header& h = header();
  geometry_ = h.geometry;
  offsets_ = h.offsets;
  const Offsets& o = offsets_;
  const char* damaged = "index segment: its header is damaged (a region is not where it was planned)";
  expect(region_fits(o.specs, 1, o.specs_bytes, index_bytes_) &&
             region_fits(o.columns, sizeof(ColumnRecord), geometry_.num_columns, index_bytes_) &&
             region_fits(o.tables, sizeof(TableRecord), geometry_.num_tables, index_bytes_) &&
             o.specs_bytes <= kMaxSpecsBytes && geometry_.num_columns <= kMaxColumns &&
             geometry_.num_tables <= kMaxTables,
         damaged);
  instance_ = bounded(h.instance);
  name_ = bounded(h.name);
  specs_.assign(index_ + o.specs, o.specs_bytes);
  columns_.assign(at<ColumnRecord>(o.columns), at<ColumnRecord>(o.columns) + geometry_.num_columns);
  for (uint32_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].flags == kMutableColumn) mutable_columns_.push_back(c);
    has_values_ |= columns_[c].flags == kPerItemColumn;
  }
  // Planning the same arena again must give the same places. So every boundary is the planner's, not the header's.
  const Plan plan = plan_again();
  expect(plan.geometry == geometry_ && plan.offsets == offsets_ && plan.columns == columns_ &&
             plan.index_bytes == index_bytes_ && plan.data_bytes == data_bytes_,
         damaged);
  check_packed_rows(columns_);
  uint64_t item_base = 0, selectors = o.selectors;
  for (uint32_t i = 0; i < geometry_.num_tables; ++i) {
    copy_table(i, item_base, selectors);
    item_base += round_up(tables_[i].capacity, 8);
  }
}

Plan Arena::plan_again() const {
  const Geometry& g = geometry_;
  ArenaSpec spec;
  for (const ColumnRecord& c : columns_) spec.columns.push_back({c.row_bytes, c.flags, c.packed_bytes});
  spec.chunk_steps = g.chunk_steps;
  spec.num_chunks = g.num_chunks;
  spec.max_streams = g.max_streams;
  spec.max_sessions = g.max_sessions;
  spec.num_blocks = g.num_blocks;
  spec.block_bytes = g.block_bytes;
  spec.specs = specs_;
  for (uint32_t i = 0; i < g.num_tables; ++i) {
    const TableRecord& r = at<TableRecord>(offsets_.tables)[i];
    TableSpec t;
    t.name = bounded(r.name);
    t.max_size = r.max_size;
    t.sampler = r.roles[kSampler].kind;
    t.remover = r.roles[kRemover].kind;
    spec.tables.push_back(std::move(t));
  }
  try {
    return plan_arena(spec);
  } catch (const std::invalid_argument& e) {
    throw AttachError(AttachError::Kind::kLayout,
                      std::string("index segment: its header is damaged (") + e.what() + ")");
  }
}

void Arena::copy_table(uint32_t index, uint64_t item_base, uint64_t& selectors) {
  TableRecord& r = at<TableRecord>(offsets_.tables)[index];
  TableFacts t{bounded(r.name),
               index,
               r.max_size,
               r.capacity,
               r.max_times_sampled,
               r.slot_bits,
               r.on_full,
               r.item_steps,
               r.shard,
               r.item_base,
               {r.roles[0], r.roles[1]},
               {r.extremes[0], r.extremes[1]},
               &r};
  const SelectorPlacement p = place_selectors(t.max_size, t.roles[kSampler].kind, t.roles[kRemover].kind,
                                              offsets_.priorities + item_base * 8, selectors);
  selectors = p.end;
  expect(t.capacity == uint64_t{t.max_size} + 1 && t.slot_bits == static_cast<uint32_t>(std::bit_width(t.max_size)) &&
             t.item_base == item_base && t.shard < kMaxShards && p.roles[0] == t.roles[0] && p.roles[1] == t.roles[1] &&
             p.extremes[0] == t.extremes[0] && p.extremes[1] == t.extremes[1],
         "index segment: the record of table '" + t.name + "' is damaged");
  tables_.push_back(std::move(t));
}

void Arena::populate() const {
  // First touches inside a hold would cost 1.5 us a page, for everybody. MADV_POPULATE_READ needs Linux 5.14; before
  // it, pages are touched by hand.
#ifdef MADV_POPULATE_READ
  if (madvise(index_, index_bytes_, MADV_POPULATE_READ) == 0) return;
#endif
  for (uint64_t at_byte = 0; at_byte < index_bytes_; at_byte += 4096) {
    reinterpret_cast<std::atomic<char>*>(index_ + at_byte)->load(std::memory_order_relaxed);
  }
}

bool Arena::mlock_index() const { return mlock2(index_, index_bytes_, MLOCK_ONFAULT) == 0; }

void Arena::leave_data() const noexcept { madvise(data_, data_bytes_, MADV_DONTNEED); }

const TableFacts& Arena::table_of(uint32_t g) const {
  for (const TableFacts& t : tables_) {
    if (g >= t.item_base && g - t.item_base < t.capacity) return t;
  }
  corrupt("item index belongs to no table");
}

HeaderReport inspect_header(int index_fd) {
  HeaderReport report;
  alignas(Header) char bytes[sizeof(Header)];
  if (read_at(index_fd, bytes, sizeof bytes, 0) != sizeof bytes) return report;
  const auto* h = reinterpret_cast<const Header*>(bytes);
  report.magic_ok = h->magic == kMagic;
  if (!report.magic_ok) return report;
  report.ready = h->ready.load(std::memory_order_acquire);
  report.failed = h->failed.load(std::memory_order_acquire) != 0;
  report.layout_version = h->layout_version;
  report.layout_hash = h->layout_hash;
  report.index_bytes = h->index_bytes;
  report.data_bytes = h->data_bytes;
  report.pid_namespace = h->pid_namespace;
  report.instance = bounded(h->instance);
  report.name = bounded(h->name);
  report.boot_id = bounded(h->boot_id);
  if (report.ready == 1 && report.layout_hash == layout_hash() && h->offsets.specs_bytes <= kMaxSpecsBytes) {
    report.specs.resize(h->offsets.specs_bytes);
    report.specs.resize(read_at(index_fd, report.specs.data(), report.specs.size(), h->offsets.specs));
  }
  return report;
}

}  // namespace shmreplay
