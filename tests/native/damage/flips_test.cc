// One byte of a live arena is flipped, anywhere but in the mutex itself, and then everything is called on the arena.
// And words of every kind of record are set to extreme numbers, one after the other.
//
// Each flip happens in a forked child. The child attaches before the flip or after it, with or without a dead holder's
// log to roll back, and performs every operation in an order of its own. Whatever the operations answer, none may
// crash, read outside the mappings (which lie between guard pages), allocate without a bound or loop for ever.
// SHMREPLAY_FLIPS=<n> tries more flips; SHMREPLAY_SEED=<seed> SHMREPLAY_FLIP=<k> does one of them again.
// SHMREPLAY_SWEEP=<n> sets every n-th word, 1 all of them.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "checkpoint/checkpoint_save.h"
#include "damage/flips_attack.h"
#include "items/item_survey.h"
#include "sessions/session_reports.h"

namespace shmreplay::test {
namespace {

constexpr uint64_t kGuardBytes = 16u << 20;
constexpr rlim_t kMemoryBytes = 1u << 30;  // address space a child may use: a length that was flipped must not become a
                                           // buffer
constexpr rlim_t kCpuSeconds = kSanitized ? 120 : 10;  // an endless loop is told by the time it burns, not by the clock
constexpr unsigned kChildSeconds = 150;                // for one that sleeps

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = getenv(variable);
  return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

// ---- where a byte is flipped -------------------------------------------------------------------------------------

struct Flip {
  Region region;
  uint64_t offset;  // of a word of 32 bits
  uint32_t mask;
  bool attached;  // the child is attached before the flip
  bool dead;      // a holder died before
  uint64_t seed;  // of the child's order of operations
};

Flip choose(const Arena& a, const std::vector<Region>& regions, uint64_t seed) {
  Random random(seed);
  const Region& r = regions[random.below(regions.size())];
  uint64_t at = 0;
  // Mostly words that are in use.
  for (int tries = 0; tries < 4; ++tries) {
    at = r.begin + random.below(r.end - r.begin);
    if (*reinterpret_cast<const uint64_t*>((r.in_data ? a.data() : a.index()) + at / 8 * 8) != 0) break;
  }
  const bool whole = random.chance(0.5);
  const auto mask = static_cast<uint8_t>(whole ? 1 + random.below(255) : 1u << random.below(8));
  return {r, at / 4 * 4, uint32_t{mask} << (8 * (at % 4)), random.chance(0.7), random.chance(0.25), random.word()};
}

uint32_t* word_at(const Arena& a, const Region& r, uint64_t offset) {
  return reinterpret_cast<uint32_t*>((r.in_data ? a.data() : a.index()) + offset);
}

// Numbers that are nowhere plausible as a length, an index or a count.
constexpr uint32_t kExtremes[] = {0xffff'ffff, 0x7fff'ffff, 1u << 28, 1u << 20};
constexpr uint64_t kSweptBytes = 1024;  // of each region: enough for all fields of its records, and for several records

// Visits every word of the index that is swept.
template <class Visit>
void each_word(const std::vector<Region>& regions, Visit visit) {
  for (const Region& r : regions) {
    if (r.in_data) continue;
    for (uint64_t at = r.begin; at + 4 <= std::min(r.end, r.begin + kSweptBytes); at += 4) visit(r, at);
  }
}

// ---- what is called on it ----------------------------------------------------------------------------------------

// Makes room for both segments, with nothing readable around it: a process that reads beyond an end dies.
void make_guarded_room(uint64_t index_bytes, uint64_t data_bytes) {
  const uint64_t total = 3 * kGuardBytes + index_bytes + data_bytes;
  auto* room = static_cast<char*>(mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  CHECK(room != MAP_FAILED);
  // Mappings are made in the highest gap that they fit: gaps above the room are filled.
  for (const uint64_t bytes : {index_bytes, data_bytes}) {
    for (;;) {
      void* filler = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(filler != MAP_FAILED);
      if (filler > room) continue;
      munmap(filler, bytes);
      break;
    }
  }
  munmap(room + kGuardBytes, index_bytes);
  munmap(room + 2 * kGuardBytes + index_bytes, data_bytes);
}

void limit_memory() {
  if (kSanitized) return;  // a sanitizer takes terabytes of address space
  const rlimit limit{kMemoryBytes, kMemoryBytes};
  CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

void flip_and_attack(Scene& scene, const Flip& flip) {
  alarm(kChildSeconds);
  const rlimit cpu{kCpuSeconds, kCpuSeconds + 1};
  CHECK_EQ(setrlimit(RLIMIT_CPU, &cpu), 0);
  progress() = {};
  const auto do_flip = [&] { *word_at(*scene.world.daemon, flip.region, flip.offset) ^= flip.mask; };
  if (!flip.attached) do_flip();
  make_guarded_room(scene.world.daemon->index_bytes(), scene.world.daemon->data_bytes());
  limit_memory();
  std::unique_ptr<Arena> arena;
  try {
    arena = scene.world.segments.attach(scene.client->session_index(), scene.client->session_generation());
  } catch (const AttachError&) {
    _exit(0);
  } catch (const std::system_error& e) {  // for rows of that size there is no memory below the limit
    _exit(e.code().value() == ENOMEM ? 0 : 1);
  }
  auto* attack = new Attack(scene, *arena);
  if (flip.attached) do_flip();
  attack->run(flip.seed);
  _exit(0);
}

std::string describe(const Flip& flip, uint64_t k) {
  return "flip " + shown(k) + ": " + flip.region.name + " + offset " + shown(flip.offset) + " ^ " + shown(flip.mask) +
         (flip.attached ? ", attached before" : ", attached after") + (flip.dead ? ", a dead holder" : "") + ", in '" +
         progress().operation + "'";
}

// Runs attacks, each in a child, and counts those that ended in a forbidden way.
class Trials {
 public:
  explicit Trials(Scene& scene) : scene_(scene) {}

  void run(const Flip& flip, uint64_t k) {
    if (failures_ >= kMostFailures) return;
    alarm(2 * kChildSeconds);  // for this flip, not for all of them
    scene_.restore(flip.dead);
    Child child([&] { flip_and_attack(scene_, flip); });
    const int status = child.wait();
    ++tried_;
    raised_ += progress().raised > 0 ? 1 : 0;
    if (WIFSIGNALED(status)) report(describe(flip, k) + ": killed by signal " + shown(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0) report(describe(flip, k) + ": ended with " + shown(WEXITSTATUS(status)));
  }

  void finish() {
    scene_.restore(false);
    check_healthy(*scene_.world.daemon);
    printf("%llu flips, %llu raised; ", static_cast<unsigned long long>(tried_),
           static_cast<unsigned long long>(raised_));
    CHECK_EQ(failures_, 0u);
    CHECK(tried_ > 0);
  }

 private:
  static constexpr uint64_t kMostFailures = 10;

  void report(const std::string& failure) {
    ++failures_;
    printf("\n    %s", failure.c_str());
    fflush(stdout);  // so that it is printed whatever happens next
  }

  Scene& scene_;
  uint64_t tried_ = 0, raised_ = 0, failures_ = 0;
};

// Makes what every process makes of an arena before its first call. false: the arena was refused.
bool attach_and_allocate(Scene& scene) {
  try {
    const auto arena = scene.world.segments.attach(scene.client->session_index(), scene.client->session_generation());
    const StreamWriter writer(*arena, arena->table(0), 12);
    const SampleCall reader(*arena);
    const CheckpointSave save(*arena);
    session_reports(*arena);
    sleeper_reports(*arena);
    leases_report(*arena);
    for (uint32_t t = 0; t < arena->num_tables(); ++t) {
      live_keys(*arena, arena->table(t));
      survey_items(*arena, arena->table(t), 1000);
    }
    return true;
  } catch (const AttachError&) {
    return false;
  } catch (const CorruptIndex&) {
    return false;
  }
}

}  // namespace

TEST(the_same_operations_raise_nothing_where_nothing_is_flipped) {
  Scene scene;
  for (uint64_t i = 0; i < 40; ++i) {
    scene.restore(i % 2 == 1);
    const Flip none{{"none", 0, 1}, 0, 0, true, i % 2 == 1, i};
    Child child([&] { flip_and_attack(scene, none); });
    const int status = child.wait();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (progress().raised > 0) fail(__FILE__, __LINE__, progress().said);
  }
}

TEST(a_flipped_byte_makes_an_error_or_a_wrong_answer_and_never_a_crash_or_a_hang) {
  Scene scene;
  const uint64_t base = seed(), n = number_from("SHMREPLAY_FLIPS", kSanitized ? 150 : rounds(300, 4000));
  const uint64_t only = number_from("SHMREPLAY_FLIP", UINT64_MAX);
  const uint64_t first = only == UINT64_MAX ? 0 : only, end = only == UINT64_MAX ? n : only + 1;
  const std::vector<Region> regions = regions_of(*scene.world.daemon);
  Trials trials(scene);
  for (uint64_t k = first; k < end; ++k) {
    scene.restore(false);
    trials.run(choose(*scene.world.daemon, regions, base + k * 0x9e3779b97f4a7c15), k);
  }
  trials.finish();
}

TEST(a_word_at_an_extreme_makes_an_error_or_a_wrong_answer_and_never_a_crash_or_a_hang) {
  Scene scene;
  Random random(seed());
  const uint64_t stride = number_from("SHMREPLAY_SWEEP", kSanitized ? 64 : rounds(16, 2));
  uint64_t k = random.below(stride);
  Trials trials(scene);
  each_word(regions_of(*scene.world.daemon), [&](const Region& r, uint64_t offset) {
    if (++k % stride != 0) return;
    scene.restore(false);
    const uint32_t extreme = kExtremes[random.below(std::size(kExtremes))];
    const uint32_t mask = *word_at(*scene.world.daemon, r, offset) ^ extreme;
    if (mask != 0) trials.run({r, offset, mask, random.chance(0.7), random.chance(0.25), random.word()}, k);
  });
  trials.finish();
}

// A word that sizes memory before the first call must be refused if it is wrong: this is tried with every word of the
// index that is swept. SHMREPLAY_SWEEP=1: each word at every extreme, else at one.
TEST(a_word_at_an_extreme_is_refused_at_attach_or_sizes_no_allocation_that_fails) {
  Scene scene;
  const std::vector<Region> regions = regions_of(*scene.world.daemon);
  const uint64_t stride = number_from("SHMREPLAY_SWEEP", kSanitized ? 64 : rounds(16, 1)) == 1 ? 1
                          : kSanitized                                                         ? 32
                                                                                               : 4;
  uint64_t k = Random(seed()).below(stride);
  alarm(2 * kChildSeconds);
  Child child([&] {
    limit_memory();
    alarm(2 * kChildSeconds);
    uint64_t tried = 0, refused = 0;
    each_word(regions, [&](const Region& r, uint64_t offset) {
      for (const uint32_t extreme : kExtremes) {
        if (++k % stride != 0) continue;
        uint32_t* const word = word_at(*scene.world.daemon, r, offset);
        const uint32_t before = std::exchange(*word, extreme);
        snprintf(progress().said, sizeof progress().said, "%s + offset %llu = %u", r.name,
                 static_cast<unsigned long long>(offset), extreme);
        ++tried;
        refused += attach_and_allocate(scene) ? 0 : 1;
        *word = before;
      }
      ++k;  // another extreme for the next word
    });
    CHECK(refused > tried / 20);  // the constants of the header, the columns and the tables
  });
  const int status = child.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail(__FILE__, __LINE__, progress().said);
}

}  // namespace shmreplay::test
