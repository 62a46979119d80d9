// Streams: the steps of one environment, in chunks linked one after the other. The record in the segment says which
// session writes it and which chunks its window still refers to. Where the next row goes, only the writer knows
// (stream_writer.h).
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// A stream whose window keeps `max_chunks` chunks. kNoStreams when max_streams are open.
Status open_stream(Hold& hold, uint32_t max_chunks, uint32_t& stream);

// Puts a chunk that was just taken at the end of the window; the oldest one leaves when there are too many.
void extend_window(Hold& hold, uint32_t stream, uint32_t chunk);

// No further row of the stream's last chunk will be written: its life has `rows` rows. `repeats`: the last of them will
// be the first of the next chunk too, before any later step is in an item.
void close_chunk(Hold& hold, uint32_t chunk, uint32_t rows, bool repeats = false);

// Drops the window. In slices of at most `slice` chunks; true when the record is free.
bool close_stream(Hold& hold, uint32_t stream, uint32_t slice);

// Closes the streams of a session that is gone; `cursor` goes on where the last slice ended. True when none are left.
bool close_streams_of(Hold& hold, uint32_t session, uint32_t generation, uint32_t& cursor, uint32_t slice);

}  // namespace shmreplay
