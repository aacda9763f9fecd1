//! Every bound on what a client may send or hold, in one place, with the reason for its size.

/// Longest collection name, bytes after percent-decoding (interface).
pub const NAME_MAX_BYTES: usize = 247;
/// Largest `k` of a search (interface).
pub const K_MAX: i64 = 65_536;
/// Hits a lane of a hybrid search may contribute: as many as a search may return.
pub const LANE_POOL_MAX: i64 = K_MAX;
/// Hits a lane contributes unless asked, at least (interface).
pub const LANE_POOL_MIN: usize = 50;
/// Lanes of one query (interface).
pub const QUERY_LANES_MAX: usize = 64;
/// How deep queries may lie inside a query (interface): the query itself has depth 0.
pub const QUERY_DEPTH_MAX: usize = 4;
/// Lanes of a query and of all queries inside it that rank by themselves. What they found is held in memory until it is combined.
pub const QUERY_LEAVES_MAX: usize = 256;
/// Hits a lane of a query may contribute (interface); more is cut to this.
pub const QUERY_POOL_MAX: usize = 10_000;
/// Examples, or pairs of them, of one lane: each is compared with up to 40,000 candidates.
pub const QUERY_EXAMPLES_MAX: usize = 256;
/// Dimensions of a sparse query: each walks a list of its own.
pub const QUERY_DIMENSIONS_MAX: usize = 16_384;
/// Results of a query that does not say how many (interface).
pub const QUERY_K_DEFAULT: usize = 10;
/// Largest dimension a query may state (interface); 65,536 floats are 256 KiB.
pub const DIM_MAX: u32 = 65_536;

/// JSON body of an ordinary route.
pub const JSON_BODY_MAX_BYTES: u64 = 32 << 20;
/// JSON body of `points/batch`, `points/bulk` and `batch-get`.
pub const JSON_BULK_BODY_MAX_BYTES: u64 = 256 << 20;
/// Objects of backups that one listing answers with: 100 bytes each.
pub const BACKUPS_LISTED_MAX: usize = 262_144;
/// Body of a route that may do without: it holds options alone. The interface reads that of `bulk/build` without a cap.
pub const OPTIONS_BODY_MAX_BYTES: u64 = 1 << 20;

/// Points in one binary ingest body.
pub const BINARY_INGEST_MAX_POINTS: u32 = 262_144;
/// Points in one JSON ingest body: as many. The shortest point has 3 bytes of text and takes some 60 in memory, in a collection of named
/// spaces some 110.
pub const JSON_INGEST_MAX_POINTS: usize = BINARY_INGEST_MAX_POINTS as usize;
/// Token vectors in one JSON ingest body of documents. The shortest has 3 bytes of text and takes some 40 in memory.
pub const JSON_INGEST_MAX_TOKENS: usize = 1 << 20;
/// Token vectors of a document.
pub const TOKENS_MAX: usize = nigh_engine::collection::TOKENS_MAX;
/// Token vectors of a query.
pub const QUERY_TOKENS_MAX: usize = nigh_engine::collection::QUERY_TOKENS_MAX;
/// Nodes of one filter. The shortest has 3 bytes of text and some 270 in memory.
pub const FILTER_NODES_MAX: usize = nigh_engine::filter::MAX_NODES;
/// Rows of one binary ingest body with its header.
pub const BINARY_INGEST_MAX_BYTES: u64 = 256 << 20;
/// One payload of a binary ingest body.
pub const BINARY_PAYLOAD_MAX_BYTES: u32 = 1 << 20;
/// All payloads of a binary ingest body together. The interface bounds each of 262,144 payloads but not their sum,
/// which would allow 256 GiB; as much again as the rows is more than any client sends (they stop at 64 MiB in all).
pub const BINARY_PAYLOADS_MAX_BYTES: u64 = 256 << 20;
/// One binary query body.
pub const BINARY_QUERY_MAX_BYTES: u64 = 8 << 20;
/// Filter inside a binary query body.
pub const BINARY_QUERY_FILTER_MAX_BYTES: u32 = 1 << 20;
/// What the searches of a binary body have in common: a filter of that size, and some names and numbers.
pub const BINARY_SEARCHES_COMMON_MAX_BYTES: u32 = BINARY_QUERY_FILTER_MAX_BYTES + (64 << 10);

/// One encoded payload row.
pub const PAYLOAD_ROW_MAX_BYTES: usize = nigh_shard::core::PAYLOAD_ROW_MAX_BYTES;
/// Ids of one deletion, or of one change of payloads: 8 MiB of them, and a second of work between which other requests run.
pub const DELETE_IDS_MAX: usize = 1 << 20;
/// Keys of one payload.
pub const PAYLOAD_KEYS_MAX: usize = nigh_shard::core::PAYLOAD_KEYS_MAX;

/// Objects and arrays of several kinds in the payload of one point, bytes of JSON, and bytes of what filters find inside: they are read again
/// whenever the payload changes.
pub const PAYLOAD_JSON_MAX_BYTES: usize = nigh_shard::core::PAYLOAD_JSON_MAX_BYTES;

/// Request line and headers; beyond it 431.
pub const HEADER_BLOCK_MAX_BYTES: usize = 1 << 20;
/// Headers of one request: what the parser takes as it is.
pub const HEADERS_MAX: usize = 100;
/// Heads of requests in the process, bytes, beyond the first 8 KiB of each connection: they come before anybody knows who sends them, so
/// strangers have this much in all, and no part of what bodies and answers may take.
pub const HEADS_MAX_BYTES: u64 = 64 << 20;
/// What the account of memory has for every open connection: the buffers of an idle one or the beginning of a request, its task, and a
/// response that is too short to be counted by itself. A sixteenth of the memory may go to connections.
pub const CONNECTION_BYTES: u64 = 36 << 10;
/// From accept, or from the first byte of a later request, to the end of its headers.
pub const HEADER_READ_MAX_SECONDS: u32 = 10;
/// Waiting for body bytes, all waits of one request together, before the transfer's own allowance.
pub const BODY_READ_MAX_SECONDS: u32 = 60;
/// Every this many received bytes allow one more second of waiting, so a slow upload that makes progress is never
/// cut while one that drips a byte a minute is.
pub const BODY_BYTES_PER_EXTRA_SECOND: u64 = 1024;
/// Waiting for body bytes however many come: the largest bodies at 150 KB/s. Without it one could drip for days, and keep its memory.
pub const BODY_LIFE_MAX_SECONDS: u32 = 3600;
/// A response that the client does not take: nothing of it for so long, or, all waits together, less than
/// [`BODY_BYTES_PER_EXTRA_SECOND`] beyond that.
pub const WRITE_STALL_MAX_SECONDS: u32 = 120;
/// A kept-alive connection without a request. Clients never retry a write on a pooled connection that died, so this is
/// not shorter than what they are used to.
pub const IDLE_MAX_SECONDS: u32 = 120;
/// After an early answer, at most this much of the request's body is read and discarded; a longer body ends the connection.
pub const BODY_DRAINED_MAX_BYTES: u64 = 256 << 10;
/// How long a closing connection is still read (and the bytes thrown away), so that the answer to an upload that
/// was refused half-way reaches the client instead of a reset.
pub const LINGER_MAX_MS: u64 = 5_000;
/// How long requests in flight may finish after the server is asked to stop.
pub const DRAIN_MAX_MS: u64 = 5_000;
/// While the server stops: a request that is half sent, or an answer that is half taken, is given up when its client does nothing for so
/// long.
pub const DRAIN_STALL_MAX_MS: u64 = 500;
/// How long a TCP connection without a request under way waits for its client to end its half when the process stops: what the client
/// sends in that time is thrown away instead of resetting the connection.
pub const DRAIN_LINGER_MAX_MS: u64 = 250;

/// JSON parsed between two chances for other work of the core: 230 us at the measured 280 MB/s.
pub const SLICE_BYTES: usize = 64 << 10;
/// JSON bodies of ordinary routes beyond this are decoded on a thread of their own: 32 MiB take over 100 ms, and they
/// cannot be cut into slices. Usual ones take well under 1 ms here and would wait longer for the thread.
pub const INLINE_JSON_MAX_BYTES: usize = 256 << 10;
/// Points of an answer that are fetched and written at a time, about 250 us with payloads of 100 bytes; longer answers
/// stream page by page.
pub const PAGE_POINTS: usize = 256;
/// Points of the first page of an answer with payloads, before their size is known.
pub const FIRST_PAGE_POINTS: usize = 16;
/// A page larger than this makes the next one smaller, as does one whose points have as many bytes.
pub const PAGE_BYTES: usize = nigh_shard::core::PAGE_BYTES;
/// What an answer that is made page by page holds beside what was found: a page that the client takes and the next one. A larger page
/// is counted when it is made.
pub const PAGES_IN_FLIGHT_BYTES: usize = 2 * PAGE_BYTES;
/// How long a page larger than that waits for room beside other answers, before the connection is cut.
pub const PAGE_WAIT_MAX_MS: u64 = 10_000;
/// Vector components of an answer that are written at a time, 200 us at 25 ns each.
pub const PAGE_COMPONENTS: usize = 8192;
/// Request bodies being received or worked on in the process, bytes; more are refused with 503. Two of the largest fit
/// four times over; without a bound, clients could fill memory with half-sent uploads.
pub const BODIES_MAX_BYTES: u64 = 2 << 30;
/// Most results of a search for diverse results (MMR): each is compared with every candidate.
pub const DIVERSE_K_MAX: i64 = 1000;
/// Most candidates of one.
pub const DIVERSE_POOL_MAX: i64 = 10_000;
/// Most distinct words of a text query, stop words aside: each is looked up, and its list walked beside the others.
pub const QUERY_TERMS_MAX: usize = nigh_engine::text::QUERY_TERMS_MAX;
/// Words of a phrase in a text query.
pub const PHRASE_WORDS_MAX: usize = nigh_engine::text::PHRASE_WORDS_MAX;
/// Terms that the last word of a text query stands for as a prefix.
pub const PREFIX_TERMS_MAX: usize = nigh_engine::text::PREFIX_TERMS_MAX;
/// Text of one query: it is cut into words in one piece, some 60 ns a byte.
pub const QUERY_TEXT_MAX_BYTES: usize = 128 << 10;

/// Open connections of the binary protocol, all cores together (interface).
pub const TCP_CONNECTIONS_MAX: u64 = 10_000;
/// Such a connection without a request (interface).
pub const TCP_IDLE_MAX_SECONDS: u32 = 300;
/// Waiting for the rest of a frame, all waits together, before the transfer's own allowance
/// ([`BODY_BYTES_PER_EXTRA_SECOND`]).
pub const TCP_FRAME_READ_MAX_SECONDS: u32 = BODY_READ_MAX_SECONDS;
/// Waiting for the rest of a frame however many bytes come: the largest at 20 KB/s.
pub const TCP_FRAME_LIFE_MAX_SECONDS: u32 = 900;
/// Of a longer frame this much has to be there for its sender to be judged: token, operation and collection lie within, also inside an
/// envelope: 791 bytes at most.
pub const TCP_FRAME_JUDGED_BYTES: usize = 1 << 10;
/// Received bytes of a connection that wait as long as none of its requests was allowed.
pub const TCP_STRANGER_BYTES: usize = 16 << 10;
/// A response that the client does not take (interface).
pub const TCP_WRITE_STALL_MAX_SECONDS: u32 = 30;
/// Every this many bytes of a response allow one more second of such waits, all of them together: a client that takes a byte now and
/// then must not keep 16 MiB for hours.
pub const TCP_RESPONSE_BYTES_PER_EXTRA_SECOND: u64 = 16 << 10;
/// Requests of one connection that are carried out together; the others wait, at last in the client (interface).
pub const TCP_ROUND_REQUESTS_MAX: usize = 64;
/// Bytes of responses after which a round ends early: 64 of the largest responses would be 1 GiB.
pub const TCP_ROUND_RESPONSES_BYTES: usize = 256 << 10;
/// Reads of collections in a round that are under way at a time: each may hold an answer of 16 MiB.
pub const TCP_READS_TOGETHER_MAX: usize = 16;
/// Received bytes of a connection that wait, beyond those of one frame: 64 requests of 4 KiB.
pub const TCP_RECEIVE_BYTES_MAX: usize = 256 << 10;

/// One message of gRPC, either way (interface). The largest JSON body that has no list of points is half of it.
pub const GRPC_MESSAGE_MAX_BYTES: usize = 64 << 20;
/// One message of a call that is served without a token. It is not counted by itself, so that strangers take no part of what requests may.
pub const GRPC_OPEN_MESSAGE_MAX_BYTES: usize = 1 << 10;
/// Calls of one connection that are open at a time, as HTTP/2 tells clients; further ones are refused before they begin, and clients wait.
pub const GRPC_STREAMS_MAX: u32 = 128;
/// Headers of one call, names and values; a token is the longest of them.
pub const GRPC_HEADERS_MAX_BYTES: u32 = 16 << 10;
/// What the account of memory has beside that for every secure connection: its session, and records that are received or sent.
pub const TLS_CONNECTION_BYTES: u64 = 64 << 10;
/// Handshakes of TLS that may be under way on a core and for a transport. Further clients are sent an alert and closed.
pub const TLS_HANDSHAKES_MAX: usize = 1024;
/// What the account of memory has for every open connection of gRPC: windows and buffers of HTTP/2, and its two tables of headers.
pub const GRPC_CONNECTION_BYTES: u64 = 192 << 10;
/// What it has for every call: its task, its stream, and a message or an answer that is too short to be counted by itself.
pub const GRPC_CALL_BYTES: u64 = 12 << 10;
/// Bytes of bodies that a client may send before the calls of its connection have taken any of them, and likewise in one call.
pub const GRPC_WINDOW_BYTES: u32 = 128 << 10;
/// Bytes of an answer that HTTP/2 holds for a client that takes none.
pub const GRPC_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Pieces of an answer that HTTP/2 holds at a time: each takes some 350 bytes beside its own, however short it is.
pub const GRPC_PIECES_MAX: usize = 8;
/// Watches of the health of one connection: each looks at the status every second for as long as its client likes, who needs no token.
pub const GRPC_WATCHES_MAX: usize = 8;
/// Messages beyond this are decoded on a thread of their own: the shortest point of a batch has two bytes, and takes some 100 ns.
pub const GRPC_INLINE_BYTES: usize = 64 << 10;
/// What HTTP/2 may hold of short frames beside their bytes before it closes a connection, 256 for each. Clients send each short message in a
/// frame of its own; those that come for a call that has ended already are never given back.
pub const GRPC_SMALL_FRAMES_BYTES: usize = 4 << 20;
/// Bytes that are received from one connection before others of the core have their turn: 200 us of small frames.
pub const GRPC_RECEIVED_PER_TURN_BYTES: usize = 128 << 10;
/// Bytes that are sent to one connection before others of the core have their turn: 300 us.
pub const GRPC_SENT_PER_TURN_BYTES: usize = 1 << 20;
/// Calls of one connection that begin before others of the core have their turn.
pub const GRPC_CALLS_PER_TURN: usize = 32;
/// Frames without use that a client may send in a second (pings, settings, resets, windows, empty ones): some milliseconds of a core. What
/// lies in the kernel's buffers of an answer may be taken at once, with two windows opened for every 16 KiB.
pub const GRPC_IDLE_FRAMES_PER_SECOND: u64 = 4096;
/// Further ones for each frame that begins a call or carries data: a call has its reset, windows of its own and of the connection, and the pings
/// that measure the way.
pub const GRPC_IDLE_FRAMES_PER_USEFUL: u64 = 8;
/// Every this many bytes that are sent to a client allow one more such frame, by which it opens its windows again.
pub const GRPC_SENT_BYTES_PER_IDLE_FRAME: u64 = 1024;
/// A connection of gRPC without a call is told to go away: libraries open another when they need it.
pub const GRPC_IDLE_MAX_SECONDS: u32 = 1800;
/// Bytes of a client's words that a refusal quotes before its token has been looked at.
pub const GRPC_QUOTED_BYTES: usize = 96;
/// Ids of one request. An answer has room for no more points than that.
pub const GRPC_IDS_MAX: usize = 1 << 20;
/// Aliases that are changed in one request.
pub const ALIAS_ACTIONS_MAX: usize = 65_536;
/// Scopes of one key.
pub const GRPC_KEY_SCOPES_MAX: usize = 1024;

/// Searches of one batch. The shortest has two bytes in its request and some 40 in memory.
pub const SEARCHES_MAX: usize = 65_536;
/// Searches of a batch that run at the same time, and whose answers are held until the client has taken them: enough to use idle cores.
pub const SEARCHES_TOGETHER_MAX: usize = 8;

/// Most keys of one order (interface).
pub const ORDER_KEYS_MAX: usize = 16;
