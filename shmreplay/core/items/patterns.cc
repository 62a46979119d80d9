#include "items/patterns.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace shmreplay {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

uint64_t hash_text(uint64_t hash, const std::string& text) noexcept {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

static_assert(kMaxColumns * (sizeof(PatternOutput) + sizeof(Slice)) + 8 <= size_t{kPatternWords} * 8);

// The bytes of the elements, one after the other. Both functions return the place after them. An empty vector has no
// data to point at.
template <class T>
char* put_all(char* to, const std::vector<T>& elements) noexcept {
  if (!elements.empty()) std::memcpy(to, elements.data(), elements.size() * sizeof(T));
  return to + elements.size() * sizeof(T);
}

template <class T>
const char* get_all(const char* from, std::vector<T>& elements) noexcept {
  if (!elements.empty()) std::memcpy(elements.data(), from, elements.size() * sizeof(T));
  return from + elements.size() * sizeof(T);
}

uint64_t slice_rows(const Slice& s, uint64_t positions) noexcept {
  const int64_t begin = s.begin + (s.anchors & kBeginAtEnd ? static_cast<int64_t>(positions) : 0);
  const int64_t end = s.end + (s.anchors & kEndAtEnd ? static_cast<int64_t>(positions) : 0);
  const int64_t distance = s.step > 0 ? end - begin : begin - end, step = std::abs(int64_t{s.step});
  return distance > 0 ? static_cast<uint64_t>((distance + step - 1) / step) : 0;
}

// A hash of 0 means "never used" in a record.
uint64_t nonzero(uint64_t hash) noexcept { return hash == 0 ? 1 : hash; }

bool holds(const PatternRecord& r, const PreparedPattern& p) noexcept {
  return r.hash.get() == p.hash && r.structure_hash.get() == p.structure && r.blob_bytes.get() == p.blob.size() * 8;
}

void give_record(Hold& hold, PatternRecord& r, const PreparedPattern& p) {
  hold.set(r.hash, p.hash);
  hold.set(r.structure_hash, p.structure);
  hold.set(r.usage, {r.usage.get().generation + 1, 0});
  hold.set(r.size, {static_cast<uint32_t>(p.pattern.outputs.size()), static_cast<uint32_t>(p.pattern.slices.size())});
  hold.set(r.blob_bytes, static_cast<uint32_t>(p.blob.size() * 8));
  for (size_t i = 0; i < p.blob.size(); ++i) hold.set(r.blob[i], p.blob[i]);
}

}  // namespace

uint64_t Pattern::rows(size_t o, uint64_t positions) const noexcept {
  uint64_t n = 0;
  for (uint32_t i = 0; i < outputs[o].num_slices; ++i) n += slice_rows(slices[outputs[o].first_slice + i], positions);
  return n;
}

uint64_t Pattern::structure_hash() const noexcept {
  uint64_t hash = hash_text(0x5d1f, names);
  for (const PatternOutput& o : outputs) hash = mix(mix(hash, o.column), o.flags & kSqueezed);
  return nonzero(hash);
}

std::vector<uint64_t> Pattern::encode() const {
  const size_t bytes = outputs.size() * sizeof(PatternOutput) + slices.size() * sizeof(Slice) + 8 + names.size();
  if (bytes > size_t{kPatternWords} * 8 || outputs.size() > kMaxOutputs) {
    throw std::length_error("the trajectory's pattern takes " + std::to_string(bytes) + " bytes and " +
                            std::to_string(outputs.size()) + " outputs; at most " + std::to_string(kPatternWords * 8) +
                            " bytes and " + std::to_string(kMaxOutputs) +
                            " outputs fit; select with slices instead of lists");
  }
  std::vector<uint64_t> words((bytes + 7) / 8, 0);
  char* at = reinterpret_cast<char*>(words.data());
  at = put_all(at, outputs);
  at = put_all(at, slices);
  const uint64_t length = names.size();
  std::memcpy(at, &length, 8);
  std::memcpy(at + 8, names.data(), names.size());
  return words;
}

Pattern Pattern::decode(const uint64_t* words, uint32_t num_outputs, uint32_t num_slices, uint32_t blob_bytes) {
  const uint64_t fixed = uint64_t{num_outputs} * sizeof(PatternOutput) + uint64_t{num_slices} * sizeof(Slice) + 8;
  if (blob_bytes > kPatternWords * 8 || num_outputs > kMaxOutputs || fixed > blob_bytes) corrupt("a pattern's sizes");
  Pattern p;
  p.outputs.resize(num_outputs);
  p.slices.resize(num_slices);
  const char* at = reinterpret_cast<const char*>(words);
  at = get_all(at, p.outputs);
  at = get_all(at, p.slices);
  uint64_t length;
  std::memcpy(&length, at, 8);
  if (length > blob_bytes - fixed) corrupt("a pattern's names");
  p.names.assign(at + 8, length);
  for (const PatternOutput& o : p.outputs) {
    if (o.first_slice > num_slices || o.num_slices > num_slices - o.first_slice) corrupt("a pattern's slices");
  }
  constexpr int32_t kFar = 1 << 28;
  for (const Slice& s : p.slices) {
    if (s.step == 0 || s.begin < -kFar || s.begin > kFar || s.end < -kFar || s.end > kFar) corrupt("a pattern's slice");
  }
  return p;
}

Pattern whole_step_pattern(const Arena& arena, bool squeezed, const std::vector<bool>& lacking) {
  Pattern p;
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    const bool lacks = !lacking.empty() && lacking[c], per_item = arena.columns()[c].flags == kPerItemColumn;
    p.outputs.push_back({static_cast<uint16_t>(c), static_cast<uint16_t>(squeezed || per_item ? kSqueezed : 0),
                         per_item ? 0u : 1u, static_cast<uint32_t>(p.slices.size()), lacks ? 1u : 0u});
    if (!per_item) p.slices.push_back(squeezed ? Slice{0, 1, 1, 0} : Slice{0, 0, 1, kEndAtEnd});
  }
  return p;
}

uint64_t hash_words(const std::vector<uint64_t>& words) noexcept {
  uint64_t hash = words.size();
  for (const uint64_t w : words) hash = mix(hash, w);
  return nonzero(hash);
}

PreparedPattern::PreparedPattern(Pattern p)
    : pattern(std::move(p)), blob(pattern.encode()), hash(hash_words(blob)), structure(pattern.structure_hash()) {}

Status intern_pattern(Hold& hold, PreparedPattern& prepared) {
  Arena& a = hold.arena();
  if (prepared.record != kNone && holds(a.pattern(prepared.record), prepared)) return Status::kOk;
  uint32_t spare = kNone;
  for (uint32_t i = 0; i < a.geometry().max_patterns; ++i) {
    PatternRecord& r = a.pattern(i);
    if (holds(r, prepared)) {
      prepared.record = i;
      return Status::kOk;
    }
    // A record that was never used is taken before one that may be wanted again.
    const bool better = spare == kNone || (r.hash.get() == 0 && a.pattern(spare).hash.get() != 0);
    if (r.usage.get().refs == 0 && better) spare = i;
  }
  if (spare == kNone) return Status::kNoPatterns;
  give_record(hold, a.pattern(spare), prepared);
  prepared.record = spare;
  return Status::kOk;
}

void add_pattern_ref(Hold& hold, uint32_t record) {
  Word<GenerationRefs>& usage = hold.arena().pattern(record).usage;
  hold.set(usage, {usage.get().generation, usage.get().refs + 1});
}

void drop_pattern_ref(Hold& hold, uint32_t record) {
  Word<GenerationRefs>& usage = hold.arena().pattern(record).usage;
  if (usage.get().refs == 0) corrupt("a pattern lost more references than it had");
  hold.set(usage, {usage.get().generation, usage.get().refs - 1});
}

PatternCache::PatternCache(Arena& arena)
    : arena_(arena), entries_(arena.geometry().max_patterns), raw_(std::make_unique<Raw[]>(kPending)) {}

bool PatternCache::note(Hold&, uint32_t record) {
  const PatternRecord& r = arena_.pattern(record);
  Entry& e = entries_[record];
  const uint32_t generation = r.usage.get().generation;
  if (e.part != 0 && e.generation == generation) {
    e.part = part_;
    return true;
  }
  if (num_raw_ == kPending || e.part == part_) return false;
  Raw& raw = raw_[num_raw_++];
  raw.record = record;
  raw.num_outputs = r.size.get().num_outputs;
  raw.num_slices = r.size.get().num_slices;
  raw.blob_bytes = r.blob_bytes.get();
  if (raw.blob_bytes > kPatternWords * 8) corrupt("a pattern's size");
  for (uint32_t i = 0; i < (raw.blob_bytes + 7) / 8; ++i) raw.words[i] = r.blob[i].get();
  e.generation = generation;
  e.part = part_;
  return true;
}

bool PatternCache::is_settled(uint32_t record) const noexcept {
  for (uint32_t i = 0; i < num_raw_; ++i) {
    if (raw_[i].record == record) return false;
  }
  return true;
}

void PatternCache::settle() {
  // The oldest first: a call that ended early may have left one from a record that shows another pattern since.
  for (uint32_t i = 0; i < num_raw_; ++i) {
    const Raw& raw = raw_[i];
    auto pattern =
        std::make_unique<Pattern>(Pattern::decode(raw.words, raw.num_outputs, raw.num_slices, raw.blob_bytes));
    for (const PatternOutput& o : pattern->outputs) {
      if (o.column >= arena_.geometry().num_columns) corrupt("a pattern's column");
    }
    entries_[raw.record].pattern = std::move(pattern);
  }
  num_raw_ = 0;
}

}  // namespace shmreplay
