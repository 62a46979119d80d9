#include "items/episodes.h"

namespace shmreplay {

uint32_t count_episode(Hold& hold, const TableFacts& t, uint64_t episode, bool own_episode, uint32_t slot) {
  Arena& a = hold.arena();
  TableRecord& r = *t.record;
  if (own_episode) {
    hold.add(r.num_episodes, 1);
    return kNone;
  }
  if (slot != kNone) {
    EpisodeRecord& e = a.episode(slot);
    if (e.episode.get() == episode && e.use.get().items > 0) {
      hold.set(e.use, {e.use.get().items + 1, kNone});
      return slot;
    }
  }
  slot = r.free_episode.get();
  if (slot == kNone) corrupt("a table has no free episode record");
  EpisodeRecord& e = a.episode(slot);
  hold.set(r.free_episode, e.use.get().next_free);
  hold.set(e.episode, episode);
  hold.set(e.use, {1, kNone});
  hold.add(r.num_episodes, 1);
  return slot;
}

void discount_episode(Hold& hold, const TableFacts& t, uint32_t slot) {
  TableRecord& r = *t.record;
  if (slot != kNone) {
    EpisodeRecord& e = hold.arena().episode(slot);
    const EpisodeUse use = e.use.get();
    if (use.items == 0) corrupt("an episode lost more items than it had");
    if (use.items > 1) {
      hold.set(e.use, {use.items - 1, kNone});
      return;
    }
    hold.set(e.use, {0, r.free_episode.get()});
    hold.set(r.free_episode, slot);
  }
  hold.add(r.num_episodes, -1);
  hold.add(r.num_deleted_episodes, 1);
}

}  // namespace shmreplay
