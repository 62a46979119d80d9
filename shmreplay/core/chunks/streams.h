// Streams: each is the steps of one environment, in chunks linked one after the other. The record in the segment says
// which session writes the stream and which chunks its window still refers to. Only the writer knows where the next row
// goes (write/stream_row.h).
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Opens a stream whose window keeps at most `max_chunks` chunks. kNoStreams when max_streams are open.
Status open_stream(Hold& hold, uint32_t max_chunks, uint32_t& stream);

// Puts a chunk that was just taken at the end of the window. If there are too many, the oldest one leaves.
void extend_window(Hold& hold, uint32_t stream, uint32_t chunk);

// No further row of the stream's last chunk will be written: it has `rows` rows. `repeats`: its last row will also be
// the first row of the next chunk, before any later step is in an item.
void close_chunk(Hold& hold, uint32_t chunk, uint32_t rows, bool repeats = false);

// Drops the window, in slices of at most `slice` chunks. True when the record is free.
bool close_stream(Hold& hold, uint32_t stream, uint32_t slice);

// Closes the streams of a session that is gone. `cursor`: where the last slice ended. True when none are left.
bool close_streams_of(Hold& hold, uint32_t session, uint32_t generation, uint32_t& cursor, uint32_t slice);

}  // namespace shmreplay
