#include "explorer/explorer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <ucontext.h>

#include "explorer/machine.h"
#include "explorer/states.h"

namespace shmreplay::explorer {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kHeapBytes = 4 << 10;
constexpr size_t kScrubbed = 8 << 10;      // below the live part of a stack: what lies there must not tell states apart
constexpr uint32_t kFirstTid = 5'000'001;  // above every thread id that Linux gives: no such thread lives

// What is known of 8 bytes of a segment.
enum Touch : uint8_t { kWatched = 1, kSilent = 2, kOpenly = 4, kWritten = 8, kNoticed = 16 };

struct Segment {
  char* at;
  size_t bytes;
  std::vector<uint8_t> touches;  // for each 8 bytes
};

struct Mapping {
  char* at;
  size_t bytes;
  uint32_t segment;
};

struct Region {
  std::string name;
  char* at;
  size_t bytes;
  Memory kind;
};

struct Scrub {
  const char* word;
  char* at;
  size_t bytes;
};

enum class Act : uint8_t { kRun, kDie, kStop, kGoOn, kTimePasses };

struct Choice {
  Act act;
  uint8_t process;
};

struct Taken {
  Choice choice;
  const char* does;
  const void* where;
};

struct Frame {
  size_t saved;  // where its snapshot begins
  size_t way;    // length of the way to it
  std::vector<Choice> choices;
  size_t next;
};

}  // namespace

struct Machine {
  std::vector<Segment> segments;
  std::vector<Mapping> mappings;
  std::vector<Region> regions;
  std::vector<Scrub> scrubs;
  std::vector<std::unique_ptr<Process>> processes;
  pthread_mutex_t* mutex = nullptr;
  Common common{};
  Budget budget;
  Point point = Point::kAll;
  uint32_t current = UINT32_MAX;
  bool again = false;  // a word turned out to be noticed by others
  std::string fault;
  uint32_t accused = UINT32_MAX;  // the process that found a fault, which allocates nothing
  const char* accusation = nullptr;
  const void* accused_at = nullptr;
  jmp_buf context{};
  ucontext_t entry{}, origin{};
  States states;
  std::vector<char> saved;
  std::vector<Frame> frames;
  std::vector<Taken> way;
  Result result;

  const Explorer* explorer = nullptr;

  Segment* segment_of(const void*& at);
  bool holds_mutex(uint32_t p) const;
  bool can_run(uint32_t p) const {
    const Now& now = processes[p]->now;
    return !now.stopped && (now.life == Life::kReady || now.life == Life::kNew);
  }
  void yield(Point at);
  void run(uint32_t p);
  void fork_off(uint32_t p);
  void kill(uint32_t p);
  bool pass_time();
  void apply(Choice c);
  void list(std::vector<Choice>& out) const;
  std::string judge_rest();
  uint64_t hash() const;
  void save();
  void restore(size_t from);
  void begin();
  bool search();
  std::string place(const void* at) const;
  std::vector<std::string> told() const;
};

namespace {

Machine* machine = nullptr;  // while it explores

// ---- stacks ------------------------------------------------------------------------------------------------------

[[gnu::noinline]] char* below_caller() { return static_cast<char*>(__builtin_frame_address(0)); }

void enter() {
  Process& p = *machine->processes[machine->current];
  try {
    p.body();
  } catch (const std::exception&) {
    accuse("threw an exception", nullptr);
  }
  p.now.life = Life::kDone;
  p.does = "has ended";
  _longjmp(machine->context, 1);
}

}  // namespace

[[gnu::noinline]] void Machine::yield(Point at) {
  Process& p = *processes[current];
  point = at;
  p.low = below_caller();
  if (_setjmp(p.context) == 0) _longjmp(context, 1);
}

[[gnu::noinline]] void Machine::fork_off(uint32_t p) {
  getcontext(&entry);
  entry.uc_stack.ss_sp = processes[p]->stack;
  entry.uc_stack.ss_size = kStackBytes;
  entry.uc_link = nullptr;
  makecontext(&entry, enter, 0);
  swapcontext(&origin, &entry);
}

[[gnu::noinline]] void Machine::run(uint32_t p) {
  current = p;
  point = Point::kAll;
  if (_setjmp(context) == 0) {
    if (processes[p]->now.life == Life::kNew) {
      processes[p]->now.life = Life::kReady;
      fork_off(p);
    } else {
      _longjmp(processes[p]->context, 1);
    }
  }
  Process& ran = *processes[current];
  current = UINT32_MAX;
  const bool live = ran.now.life == Life::kReady || ran.now.life == Life::kBlocked;
  if (!live) ran.low = ran.stack + kStackBytes;
  ran.now.stack_bytes = static_cast<uint64_t>(ran.stack + kStackBytes - ran.low);
  std::memset(std::max(ran.stack, ran.low - kScrubbed), 0,
              std::min(kScrubbed, static_cast<size_t>(ran.low - ran.stack)));
}

// ---- steps -------------------------------------------------------------------------------------------------------

Segment* Machine::segment_of(const void*& at) {
  auto* p = static_cast<const char*>(at);
  for (const Mapping& m : mappings) {
    if (p < m.at || p >= m.at + m.bytes) continue;
    at = segments[m.segment].at + (p - m.at);
    return &segments[m.segment];
  }
  return nullptr;
}

bool Machine::holds_mutex(uint32_t p) const {
  return mutex != nullptr && (static_cast<uint32_t>(mutex->__data.__lock) & 0x3fff'ffff) == kFirstTid + p;
}

Process* running() noexcept {
  return machine == nullptr || machine->current == UINT32_MAX ? nullptr : machine->processes[machine->current].get();
}

uint32_t self() { return machine->current; }
uint32_t pid_of(uint32_t process) { return kFirstTid + process; }

void accuse(const char* text, const void* at) {
  machine->accused = machine->current;
  machine->accusation = text;
  machine->accused_at = at;
  machine->yield(Point::kAll);
  std::abort();
}

void require(bool condition, const char* text) {
  if (condition) return;
  if (machine == nullptr || machine->current == UINT32_MAX) throw std::runtime_error(text);
  accuse(text, nullptr);
}

// What functions that have returned left on the stack must not tell states apart.
[[gnu::noinline]] void wipe() {
  char dead[1024];
  std::memset(dead, 0, sizeof dead);
  asm volatile("" : : "r"(dead) : "memory");
}

void step(const void* at, size_t bytes, bool writes, const char* does) {
  wipe();
  Machine& m = *machine;
  Segment* s = m.segment_of(at);
  if (s == nullptr) return;
  Process& p = *m.processes[m.current];
  const auto first = static_cast<size_t>(static_cast<const char*>(at) - s->at) / 8;
  const auto last =
      std::min((static_cast<size_t>(static_cast<const char*>(at) - s->at) + bytes - 1) / 8, s->touches.size() - 1);
  const bool openly = !m.holds_mutex(m.current);
  bool noticed = false, silent = true;
  for (size_t i = first; i <= last; ++i) {
    uint8_t& t = s->touches[i];
    if (!(t & kWatched)) {
      if (writes) accuse("writes memory that is not watched:", at);
      continue;
    }
    if (t & kSilent) continue;
    silent = false;
    const uint8_t before = t;
    t = static_cast<uint8_t>(t | (openly ? kOpenly : 0) | (writes ? kWritten : 0));
    if ((t & kOpenly) && (t & kWritten)) t |= kNoticed;
    if (t != before && (t & kNoticed) && !(before & kNoticed)) m.again = true;
    noticed |= (t & kNoticed) != 0;
  }
  if (silent) return;
  ++m.result.steps;
  p.does = does;
  p.where = at;
  const bool may_die = m.common.deaths > 0 && !p.immortal;
  if (m.again || noticed || (p.now.after_shared && may_die)) m.yield(Point::kAll);
  else if (writes && may_die) m.yield(Point::kDeathOnly);
  p.now.after_shared = noticed;
}

void always_step(const void* at, const char* does) {
  Machine& m = *machine;
  m.segment_of(at);
  ++m.result.steps;
  Process& p = *m.processes[m.current];
  p.does = does;
  p.where = at;
  m.yield(Point::kAll);
  p.now.after_shared = true;
}

void stored(const void* at, uint64_t value) noexcept {
  if (value != 0) return;
  machine->segment_of(at);
  for (const Scrub& s : machine->scrubs) {
    if (s.word == at) std::memset(s.at, 0, s.bytes);
  }
}

int64_t clock_ns() {
  Process& p = *machine->processes[machine->current];
  return machine->common.base_ns + (p.now.clock += 5'001);  // a contender that spins for 5 us looks once
}

void begin_hold() { machine->processes[machine->current]->now.clock = 0; }

int block(const void* word, int64_t until) {
  Machine& m = *machine;
  m.segment_of(word);
  Process& p = *m.processes[m.current];
  p.now.life = Life::kBlocked;
  p.now.word = word;
  for (const auto& q : m.processes) p.now.since = std::max(p.now.since, q->now.since + 1);
  p.now.until = until;
  p.does = "wakes up";
  p.where = word;
  m.yield(Point::kAll);
  return p.now.result;
}

int wake(const void* word, int count) {
  Machine& m = *machine;
  m.segment_of(word);
  int woken = 0;
  for (; woken < count; ++woken) {
    Process* first = nullptr;
    for (auto& p : m.processes) {
      if (p->now.life != Life::kBlocked || p->now.word != word) continue;
      if (first == nullptr || p->now.since < first->now.since) first = p.get();
    }
    if (first == nullptr) break;
    first->now.life = Life::kReady;
    first->now.result = 0;
    first->now.word = nullptr;
    first->now.until = 0;
    first->now.since = 0;
  }
  return woken;
}

bool is_dead(uint32_t pid) {
  return pid < kFirstTid || pid - kFirstTid >= machine->processes.size() ||
         machine->processes[pid - kFirstTid]->now.life == Life::kDead;
}

// ---- memory of processes -----------------------------------------------------------------------------------------

void* allocate(size_t bytes) {
  Process& p = *machine->processes[machine->current];
  bytes = (bytes + 15) / 16 * 16;
  require(p.now.heap_used + bytes <= kHeapBytes, "allocates more than the explorer gives it");
  char* at = p.heap + p.now.heap_used;
  p.now.heap_used += bytes;
  ++p.now.heap_count;
  return at;
}

bool release(void* at) noexcept {
  if (machine == nullptr) return false;
  for (auto& p : machine->processes) {
    if (at < p->heap || at >= p->heap + kHeapBytes) continue;
    if (--p->now.heap_count == 0) {
      std::memset(p->heap, 0, p->now.heap_used);
      p->now.heap_used = 0;
    }
    return true;
  }
  return false;
}

// ---- choices -----------------------------------------------------------------------------------------------------

void Machine::kill(uint32_t p) {
  Process& dead = *processes[p];
  dead.now.life = Life::kDead;
  dead.now.word = nullptr;
  ++common.num_died;
  --common.deaths;
  ++result.deaths;
  if (explorer->at_death) explorer->at_death(p);
  if (mutex != nullptr) bury(dead, kFirstTid + p, mutex);
  dead.now = Now{};
  dead.now.life = Life::kDead;
  dead.low = dead.stack + kStackBytes;
}

// The earliest timeout ends. false: nobody waits with one.
bool Machine::pass_time() {
  int64_t at = kNever;
  for (auto& p : processes) {
    if (p->now.life == Life::kBlocked && !p->now.stopped && p->now.until != kNever)
      at = std::min(at, p->now.until - p->now.clock);
  }
  if (at == kNever) return false;
  common.base_ns = std::max(common.base_ns, at);
  for (auto& p : processes) {
    if (p->now.life != Life::kBlocked || p->now.stopped || p->now.until == kNever) continue;
    if (p->now.until - p->now.clock > common.base_ns) continue;
    p->now.life = Life::kReady;
    p->now.result = ETIMEDOUT;
    p->now.word = nullptr;
    p->now.until = 0;
    p->now.since = 0;
  }
  return true;
}

void Machine::list(std::vector<Choice>& out) const {
  out.clear();
  const auto n = static_cast<uint8_t>(processes.size());
  const auto is_live = [](const Process& p) {
    return p.now.life == Life::kNew || p.now.life == Life::kReady || p.now.life == Life::kBlocked;
  };
  if (point == Point::kDeathOnly) {
    const uint8_t p = way.back().choice.process;
    out.push_back({Act::kRun, p});
    out.push_back({Act::kDie, p});
    return;
  }
  bool somebody_runs = false, timed = false, waits_stopped = false;
  const bool goes_on = common.preemptions == 0 && can_run(common.last);
  for (uint8_t i = 0; i < n; ++i) {
    const Process& p = *processes[i];
    somebody_runs |= can_run(i);
    if (can_run(i) && (!goes_on || i == common.last)) out.push_back({Act::kRun, i});
    timed |= p.now.life == Life::kBlocked && !p.now.stopped && p.now.until != kNever;
    waits_stopped |= p.now.stopped && is_live(p);
  }
  for (uint8_t i = 0; i < n; ++i) {
    const Process& p = *processes[i];
    if (!is_live(p) || p.immortal) continue;
    // A death before the first step is no different from a process that never was.
    if (common.deaths > 0 && p.now.life != Life::kNew) out.push_back({Act::kDie, i});
    if (common.stops > 0 && !p.now.was_stopped && p.now.life == Life::kReady) out.push_back({Act::kStop, i});
  }
  if (somebody_runs && timed && common.early_timeouts > 0) out.push_back({Act::kTimePasses, 0});
  if (!somebody_runs && timed && common.slices > 0) out.push_back({Act::kTimePasses, 0});
  // A stopped process goes on when the others have waited for a while, or when there are no others.
  if (waits_stopped && !somebody_runs) {
    for (uint8_t i = 0; i < n; ++i) {
      if (processes[i]->now.stopped && is_live(*processes[i])) out.push_back({Act::kGoOn, i});
    }
  }
}

void Machine::apply(Choice c) {
  Process& p = *processes[c.process];
  way.push_back({c, p.does, p.where});
  point = Point::kAll;
  switch (c.act) {
    case Act::kRun:
      if (budget.preemptions != Budget::kAny) {
        if (c.process != common.last && can_run(common.last)) --common.preemptions;
        common.last = c.process;
      }
      run(c.process);
      break;
    case Act::kDie: kill(c.process); break;
    case Act::kStop:
      p.now.stopped = p.now.was_stopped = true;
      --common.stops;
      ++common.num_stopped;
      break;
    case Act::kGoOn: p.now.stopped = false; break;
    case Act::kTimePasses: {
      bool early = false;
      for (uint32_t q = 0; q < processes.size(); ++q) early |= can_run(q);
      if (early) {
        --common.early_timeouts;
        ++common.num_early;
      } else {
        --common.slices;
      }
      pass_time();
    }
  }
}

// What is wrong with a state in which nobody can run.
std::string Machine::judge_rest() {
  bool stopped = false, sleeps = false;
  for (uint32_t i = 0; i < processes.size(); ++i) {
    if (can_run(i)) return {};
  }
  for (auto& p : processes) {
    stopped |= p->now.stopped;
    sleeps |= p->now.life == Life::kBlocked && !p->now.stopped;
  }
  if (!sleeps) {
    if (stopped) return {};
    ++result.ends;
    return explorer->at_end ? explorer->at_end() : std::string();
  }
  const bool all_well = common.num_died == 0 && common.num_stopped == 0;
  for (uint32_t i = 0; i < processes.size(); ++i) {
    const Now& now = processes[i]->now;
    if (now.life != Life::kBlocked || now.stopped) continue;
    const std::string who = processes[i]->name + " sleeps on " + place(now.word);
    if (now.until == kNever && !stopped) return who + " for ever";
    if (all_well && !(explorer->may_sleep && explorer->may_sleep(i)))
      return who + " and nobody is left to wake it: only its timeout would";
    if (common.slices == 0 && (budget.slices_are_enough || !stopped))
      return who + " again and again: its timeouts do not end it";
  }
  return {};
}

// ---- states ------------------------------------------------------------------------------------------------------

uint64_t Machine::hash() const {
  Hash h;
  h.add(&common, sizeof common);
  h.add(static_cast<uint64_t>(point) << 32 | (point == Point::kDeathOnly ? way.back().choice.process : 0));
  for (const Region& r : regions) {
    if (r.kind != Memory::kReport) h.add(r.at, r.bytes);
  }
  for (auto& p : processes) {
    h.add(&p->now, sizeof p->now);
    if (p->now.life != Life::kReady && p->now.life != Life::kBlocked) continue;
    h.add(p->context, sizeof p->context[0].__jmpbuf);
    h.add(p->low, p->now.stack_bytes);
    h.add(p->heap, p->now.heap_used);
  }
  return h.value();
}

void Machine::save() {
  const auto put = [this](const void* at, size_t bytes) {
    const auto* p = static_cast<const char*>(at);
    saved.insert(saved.end(), p, p + bytes);
  };
  put(&common, sizeof common);
  put(&point, sizeof point);
  for (const Region& r : regions) put(r.at, r.bytes);
  for (auto& p : processes) {
    put(&p->now, sizeof p->now);
    put(&p->context, sizeof p->context);
    put(&p->low, sizeof p->low);
    put(&p->does, sizeof p->does);
    put(&p->where, sizeof p->where);
    put(p->low, static_cast<size_t>(p->stack + kStackBytes - p->low));
    put(p->heap, p->now.heap_used);
  }
}

void Machine::restore(size_t from) {
  const char* p = saved.data() + from;
  const auto get = [&p](void* at, size_t bytes) {
    std::memcpy(at, p, bytes);
    p += bytes;
  };
  get(&common, sizeof common);
  get(&point, sizeof point);
  // What a smaller watch names lies in a larger one as well: the same bytes twice.
  for (const Region& r : regions) get(r.at, r.bytes);
  for (auto& q : processes) {
    get(&q->now, sizeof q->now);
    get(&q->context, sizeof q->context);
    get(&q->low, sizeof q->low);
    get(&q->does, sizeof q->does);
    get(&q->where, sizeof q->where);
    get(q->low, static_cast<size_t>(q->stack + kStackBytes - q->low));
    std::memset(std::max(q->stack, q->low - kScrubbed), 0, std::min(kScrubbed, static_cast<size_t>(q->low - q->stack)));
    get(q->heap, q->now.heap_used);
  }
}

void Machine::begin() {
  states.clear();
  frames.clear();
  way.clear();
  saved.clear();
  const uint64_t starts = result.starts + 1;
  result = Result{};
  result.starts = starts;
  common = Common{};
  common.base_ns = int64_t{1'000'000} * 1'000'000'000;
  common.deaths = budget.deaths;
  common.stops = budget.stops;
  common.early_timeouts = budget.early_timeouts;
  common.slices = budget.slices;
  common.preemptions = budget.preemptions;
  point = Point::kAll;
  again = false;
  for (auto& p : processes) {
    p->now = Now{};
    p->does = "begins";
    p->where = nullptr;
    p->low = p->stack + kStackBytes;
  }
}

// Goes all ways. false: a word was found to be noticed by others, so everything begins anew.
bool Machine::search() {
  std::vector<Choice> choices;
  for (;;) {
    bool goes_on = false;
    if (again) return false;
    if (accused != UINT32_MAX) {
      fault = processes[accused]->name + ": " + accusation + (accused_at == nullptr ? "" : " " + place(accused_at));
      return true;
    }
    if (fault.empty() && states.add(hash())) {
      list(choices);
      fault = judge_rest();
      goes_on = !choices.empty();
    }
    if (!fault.empty()) return true;
    if (states.size() > budget.max_states) {
      fault = "more states than the budget allows";
      return true;
    }
    result.depth = std::max(result.depth, way.size());
    if (!goes_on) {
      ++result.schedules;
      while (!frames.empty() && frames.back().next == frames.back().choices.size()) {
        saved.resize(frames.back().saved);
        frames.pop_back();
      }
      if (frames.empty()) return true;
      Frame& f = frames.back();
      restore(f.saved);
      way.resize(f.way);
      apply(f.choices[f.next++]);
      continue;
    }
    if (choices.size() > 1) {
      frames.push_back({saved.size(), way.size(), choices, 1});
      save();
    }
    apply(choices[0]);
  }
}

// ---- reports -----------------------------------------------------------------------------------------------------

std::string Machine::place(const void* at) const {
  const auto* p = static_cast<const char*>(at);
  for (auto r = regions.rbegin(); r != regions.rend(); ++r) {
    if (p < r->at || p >= r->at + r->bytes) continue;
    const auto offset = p - r->at;
    return offset == 0 ? r->name : r->name + "+" + std::to_string(offset);
  }
  for (const Segment& s : segments) {
    if (p >= s.at && p < s.at + s.bytes) return "segment+" + std::to_string(p - s.at);
  }
  return "?";
}

std::vector<std::string> Machine::told() const {
  std::vector<std::string> lines;
  for (const Taken& t : way) {
    const std::string who = t.choice.act == Act::kTimePasses ? "" : processes[t.choice.process]->name;
    const std::string what = std::string(t.does) + (t.where == nullptr ? "" : " " + place(t.where));
    switch (t.choice.act) {
      case Act::kRun: lines.push_back(who + " " + what); break;
      case Act::kDie: lines.push_back(who + " DIES before it " + what); break;
      case Act::kStop: lines.push_back(who + " IS STOPPED before it " + what); break;
      case Act::kGoOn: lines.push_back(who + " GOES ON"); break;
      case Act::kTimePasses: lines.push_back("TIME PASSES"); break;
    }
  }
  return lines;
}

// ---- the explorer ------------------------------------------------------------------------------------------------

Explorer::Explorer() : machine_(new Machine) { machine_->explorer = this; }

Explorer::~Explorer() {
  for (auto& p : machine_->processes) munmap(p->stack, kStackBytes + kHeapBytes);
  delete machine_;
}

void Explorer::segment(void* at, size_t bytes) {
  machine_->segments.push_back({static_cast<char*>(at), bytes, std::vector<uint8_t>((bytes + 7) / 8)});
  machine_->mappings.push_back({static_cast<char*>(at), bytes, static_cast<uint32_t>(machine_->segments.size() - 1)});
}

void Explorer::mapping(void* at, void* of) {
  for (uint32_t i = 0; i < machine_->segments.size(); ++i) {
    if (machine_->segments[i].at == of)
      machine_->mappings.push_back({static_cast<char*>(at), machine_->segments[i].bytes, i});
  }
}

void Explorer::watch(const std::string& name, void* at, size_t bytes, Memory kind) {
  const void* where = at;
  Segment* s = machine_->segment_of(where);
  auto* begin = static_cast<char*>(const_cast<void*>(where));
  if (s != nullptr) {
    for (size_t i = static_cast<size_t>(begin - s->at) / 8; i < (static_cast<size_t>(begin - s->at) + bytes + 7) / 8;
         ++i)
      s->touches[i] = static_cast<uint8_t>(kWatched | (kind == Memory::kShared ? 0 : kSilent));
  }
  // A part of a region that is not hashed must not be hashed as a part of the larger one: the larger one is split.
  std::vector<Region> parts;
  for (Region& r : machine_->regions) {
    if (begin >= r.at + r.bytes || begin + bytes <= r.at) {
      parts.push_back(r);
      continue;
    }
    if (begin > r.at) parts.push_back({r.name, r.at, static_cast<size_t>(begin - r.at), r.kind});
    if (begin + bytes < r.at + r.bytes) {
      const auto skipped = static_cast<size_t>(begin + bytes - r.at);
      parts.push_back({r.name + "+" + std::to_string(skipped) + " on", begin + bytes, r.bytes - skipped, r.kind});
    }
  }
  parts.push_back({name, begin, bytes, kind});
  machine_->regions = std::move(parts);
}

void Explorer::mutex(pthread_mutex_t* at) {
  const void* where = at;
  machine_->segment_of(where);
  machine_->mutex = static_cast<pthread_mutex_t*>(const_cast<void*>(where));
}

void Explorer::scrub(const void* word, void* at, size_t bytes) {
  const void* where = at;
  machine_->segment_of(word);
  machine_->segment_of(where);
  machine_->scrubs.push_back({static_cast<const char*>(word), static_cast<char*>(const_cast<void*>(where)), bytes});
}

uint32_t Explorer::process(const std::string& name, std::function<void()> body, bool immortal) {
  auto p = std::make_unique<Process>();
  p->name = name;
  p->body = std::move(body);
  p->immortal = immortal;
  void* memory = mmap(nullptr, kStackBytes + kHeapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  p->stack = static_cast<char*>(memory);
  p->heap = p->stack + kStackBytes;
  p->low = p->stack + kStackBytes;
  machine_->processes.push_back(std::move(p));
  return static_cast<uint32_t>(machine_->processes.size() - 1);
}

Life Explorer::life(uint32_t process) const { return machine_->processes[process]->now.life; }
bool Explorer::somebody_died() const { return machine_->common.num_died > 0; }
bool Explorer::time_passed_early() const { return machine_->common.num_early > 0; }

Result Explorer::explore(const Budget& budget) {
  Machine& m = *machine_;
  m.budget = budget;
  m.fault.clear();
  m.accused = UINT32_MAX;
  m.result = Result{};
  m.begin();
  m.save();  // how everything is at first
  const std::vector<char> first = m.saved;
  machine = &m;
  for (;;) {
    const bool done = m.search();
    if (done) break;
    m.saved = first;
    m.restore(0);
    m.begin();
  }
  machine = nullptr;
  Result r = m.result;
  r.states = m.states.size();
  r.fault = m.fault;
  if (!m.fault.empty()) r.schedule = m.told();
  m.saved = first;
  m.restore(0);
  return r;
}

}  // namespace shmreplay::explorer
