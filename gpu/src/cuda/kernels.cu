// Exact search over rows, in three kernels. Compiled at run time with METRIC set to 0 (cosine), 1 (l2) or 2 (dot).
//
// A chunk holds rows in groups of GROUP, interleaved by quads (four values): quad q of row r lies at
//     ((r / GROUP) * quads + q) * GROUP + r % GROUP
// so that the threads of a warp, one row each, read 512 consecutive bytes, aligned. Rows end with zeros up to a whole quad.
// No kernel leaves early before a barrier: every thread of a block meets every __syncthreads.

typedef unsigned long long u64;

#define GROUP 32u
// Rows and threads of a block that scores.
#define SCORERS 128u
// Quads of a query that a block holds at a time, and the most queries that share one reading of the rows.
#define TILE 64u
#define QUERIES 8u
// Keys that a block sorts, and its threads: one per pair.
#define WIDTH 2048u
#define SORTERS 1024u
#define NOTHING 0xffffffffffffffffull

// Where a quad lies in a chunk, in quads. In 64 bits, as rows * quads is not bounded by 2^32 for every length of rows.
__device__ __forceinline__ size_t place_of(unsigned row, unsigned quads, unsigned quad) {
    return ((size_t)(row / GROUP) * quads + quad) * GROUP + row % GROUP;
}

// Writes `count` rows of `staged` (quads * count, row after row) to the places `locals` of a chunk. No row occurs twice.
extern "C" __global__ void place(float4* chunk, unsigned quads, const float4* staged, const unsigned* locals,
                                 unsigned count) {
    const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (size_t)count * quads) return;
    const unsigned index = (unsigned)(at / quads);
    const unsigned quad = (unsigned)(at % quads);
    chunk[place_of(locals[index], quads, quad)] = staged[at];
}

__device__ __forceinline__ float added(float sum, float a, float b) {
#if METRIC == 1
    const float difference = a - b;
    return sum + difference * difference;
#else
    return sum + a * b;
#endif
}

// Order of keys = order of (distance, row). Zero has one sign and NaN one form, behind infinity.
__device__ __forceinline__ u64 key(float sum, unsigned row) {
#if METRIC == 0
    float distance = 1.0f - sum;
#elif METRIC == 1
    float distance = sum;
#else
    float distance = 0.0f - sum;
#endif
    distance = distance + 0.0f;
    unsigned bits = __float_as_uint(distance);
    if (distance != distance) bits = 0x7fc00000u;
    bits = (bits >> 31) ? ~bits : (bits | 0x80000000u);
    return ((u64)bits << 32) | row;
}

// A thread scores one row against up to N queries. Keys of query q start at q * stride, in the order of the rows; rows that are not
// live get NOTHING.
template <unsigned N>
__device__ __forceinline__ void score_rows(const float4* chunk, unsigned rows, unsigned quads, const float4* queries,
                                           unsigned query_count, const unsigned* live, unsigned live_words,
                                           unsigned first_row, u64* keys, u64 stride) {
    __shared__ float4 tile[N][TILE];
    const unsigned local = blockIdx.x * SCORERS + threadIdx.x;
    const bool inside = local < rows;
    const unsigned row = first_row + local;
    const bool is_live = inside && row / 32 < live_words && ((live[row / 32] >> (row % 32)) & 1u);
    float sums[N];
#pragma unroll
    for (unsigned q = 0; q < N; q++) sums[q] = 0.0f;
    for (unsigned begin = 0; begin < quads; begin += TILE) {
        const unsigned count = quads - begin < TILE ? quads - begin : TILE;
        // What the tile held has been read by all.
        __syncthreads();
        for (unsigned i = threadIdx.x; i < N * TILE; i += SCORERS) {
            const unsigned q = i / TILE, quad = i % TILE;
            float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
            if (q < query_count && quad < count) value = queries[(size_t)q * quads + begin + quad];
            tile[q][quad] = value;
        }
        __syncthreads();
        if (is_live) {
            const float4* mine = chunk + place_of(local, quads, begin);
#pragma unroll 4
            for (unsigned quad = 0; quad < count; quad++) {
                const float4 value = mine[(size_t)quad * GROUP];
#pragma unroll
                for (unsigned q = 0; q < N; q++) {
                    const float4 other = tile[q][quad];
                    sums[q] = added(sums[q], value.x, other.x);
                    sums[q] = added(sums[q], value.y, other.y);
                    sums[q] = added(sums[q], value.z, other.z);
                    sums[q] = added(sums[q], value.w, other.w);
                }
            }
        }
    }
    if (inside) {
#pragma unroll
        for (unsigned q = 0; q < N; q++) {
            if (q < query_count) keys[(size_t)q * stride + local] = is_live ? key(sums[q], row) : NOTHING;
        }
    }
}

extern "C" __global__ void __launch_bounds__(SCORERS)
    score_one(const float4* chunk, unsigned rows, unsigned quads, const float4* queries, unsigned query_count,
              const unsigned* live, unsigned live_words, unsigned first_row, u64* keys, u64 stride) {
    score_rows<1>(chunk, rows, quads, queries, query_count, live, live_words, first_row, keys, stride);
}

extern "C" __global__ void __launch_bounds__(SCORERS)
    score_some(const float4* chunk, unsigned rows, unsigned quads, const float4* queries, unsigned query_count,
               const unsigned* live, unsigned live_words, unsigned first_row, u64* keys, u64 stride) {
    score_rows<QUERIES>(chunk, rows, quads, queries, query_count, live, live_words, first_row, keys, stride);
}

// Sorts a segment of WIDTH keys (bitonic) and writes its `keep` lowest, ascending. Block (x, y): segment x of query y.
extern "C" __global__ void __launch_bounds__(SORTERS)
    keep_lowest(const u64* in, u64 in_stride, unsigned in_count, unsigned keep, u64* out, u64 out_stride) {
    __shared__ u64 keys[WIDTH];
    const u64* mine = in + (size_t)blockIdx.y * in_stride;
    const size_t begin = (size_t)blockIdx.x * WIDTH;
    for (unsigned i = threadIdx.x; i < WIDTH; i += SORTERS) {
        keys[i] = begin + i < in_count ? mine[begin + i] : NOTHING;
    }
    __syncthreads();
    for (unsigned size = 2; size <= WIDTH; size *= 2) {
        for (unsigned gap = size / 2; gap > 0; gap /= 2) {
            // Each thread has a pair of its own: `low` runs over the indices whose bit `gap` is clear.
            const unsigned low = 2 * threadIdx.x - (threadIdx.x & (gap - 1));
            const unsigned high = low + gap;
            const bool ascending = (low & size) == 0;
            const u64 a = keys[low], b = keys[high];
            if ((a > b) == ascending) {
                keys[low] = b;
                keys[high] = a;
            }
            __syncthreads();
        }
    }
    for (unsigned i = threadIdx.x; i < keep; i += SORTERS) {
        out[(size_t)blockIdx.y * out_stride + (size_t)blockIdx.x * keep + i] = keys[i];
    }
}
