// Runs the kernels on the CPU, where there is no device: every thread of a block is a coroutine that runs from one barrier to the
// next. Checks results against plain loops, that every thread meets every barrier, that the order of threads between barriers
// changes nothing (a race would), and, built with -fsanitize=address,undefined, every index. `gpu/check` builds and runs it,
// once per metric (-DMETRIC=0, 1, 2).
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

struct alignas(16) float4 {
    float x, y, z, w;
};
struct Index {
    unsigned x = 0, y = 0, z = 0;
};
static Index threadIdx, blockIdx, blockDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
static void __syncthreads();
static unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
#include "../src/cuda/kernels.cu"

static std::mt19937_64 randomness(7);
static const char* const kernel_metric = METRIC == 0 ? "cosine" : METRIC == 1 ? "l2" : "dot";

static void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s: %s\n", kernel_metric, what);
    std::exit(1);
}

// One block: coroutines and what each is doing.
struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    unsigned barriers = 0;
    bool ended = false;
};
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static unsigned current;
static std::function<void()> kernel;

static void __syncthreads() {
    fibers[current].barriers++;
    swapcontext(&fibers[current].context, &scheduler);
    threadIdx.x = current;
}

static void enter() {
    kernel();
    fibers[current].ended = true;
    swapcontext(&fibers[current].context, &scheduler);
}

static void run_block(unsigned threads) {
    const size_t stack = 64 << 10;
    fibers.resize(std::max<size_t>(fibers.size(), threads));
    for (unsigned t = 0; t < threads; t++) {
        Fiber& fiber = fibers[t];
        if (!fiber.stack) fiber.stack.reset(new char[stack]);
        fiber.barriers = 0;
        fiber.ended = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = stack;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    std::vector<unsigned> order(threads);
    for (unsigned t = 0; t < threads; t++) order[t] = t;
    for (;;) {
        std::shuffle(order.begin(), order.end(), randomness);
        for (unsigned t : order) {
            current = t;
            threadIdx.x = t;
            swapcontext(&scheduler, &fibers[t].context);
        }
        for (unsigned t = 1; t < threads; t++) {
            require(fibers[t].ended == fibers[0].ended, "some threads of a block ended before others");
            require(fibers[t].barriers == fibers[0].barriers, "threads of a block met different barriers");
        }
        if (fibers[0].ended) return;
    }
}

static void launch(unsigned blocks, unsigned of, unsigned threads, std::function<void()> body) {
    kernel = std::move(body);
    blockDim.x = threads;
    for (unsigned y = 0; y < of; y++) {
        for (unsigned x = 0; x < blocks; x++) {
            blockIdx.x = x;
            blockIdx.y = y;
            run_block(threads);
        }
    }
}

static unsigned up(unsigned n, unsigned of) { return (n + of - 1) / of; }

// What a device does for one chunk and up to 8 queries, as in `cuda/mod.rs`.
static void check(unsigned rows, unsigned dim, unsigned count, unsigned keep, unsigned first_row, bool ties) {
    const unsigned quads = up(dim, 4), capacity = up(rows, GROUP) * GROUP;
    std::uniform_real_distribution<float> uniform(-1, 1);
    auto value = [&] { return ties ? float(int(uniform(randomness) * 2)) : uniform(randomness); };
    // Exact sizes on the heap, so that the sanitizer sees every index beyond.
    std::vector<float4> chunk(size_t(capacity) * quads, float4{0, 0, 0, 0});
    std::vector<float> values(size_t(rows) * dim), queries(size_t(count) * dim);
    for (float& v : values) v = value();
    for (float& v : queries) v = value();
    auto pad = [&](const std::vector<float>& from, unsigned n, const std::vector<unsigned>* order) {
        std::vector<float4> to(size_t(n) * quads, float4{0, 0, 0, 0});
        for (unsigned i = 0; i < n; i++) {
            const unsigned row = order ? (*order)[i] : i;
            std::memcpy(&to[size_t(i) * quads], &from[size_t(row) * dim], dim * sizeof(float));
        }
        return to;
    };
    std::vector<unsigned> locals(rows);
    for (unsigned r = 0; r < rows; r++) locals[r] = r;
    std::shuffle(locals.begin(), locals.end(), randomness);
    const auto staged = pad(values, rows, &locals);
    launch(up(rows * quads, 256), 1, 256, [&] { place(chunk.data(), quads, staged.data(), locals.data(), rows); });

    const unsigned words = (first_row + rows + 31) / 32;
    // Sometimes a mask that ends before the rows do.
    const unsigned live_words = randomness() % 4 ? words : std::max(1u, words / 2);
    std::vector<unsigned> live(live_words);
    for (unsigned& word : live) word = randomness() | randomness();
    auto is_live = [&](unsigned row) { return row / 32 < live_words && (live[row / 32] >> (row % 32) & 1); };

    const auto padded = pad(queries, count, nullptr);
    std::vector<u64> keys(size_t(count) * rows), fewer(size_t(count) * up(rows, WIDTH) * keep), list(count * keep);
    launch(up(rows, SCORERS), 1, SCORERS, [&] {
        (count == 1 ? score_one : score_some)(chunk.data(), rows, quads, padded.data(), count, live.data(), live_words,
                                              first_row, keys.data(), rows);
    });
    std::vector<std::vector<u64>> expected(count);
    for (unsigned q = 0; q < count; q++) {
        for (unsigned r = 0; r < rows; r++) {
            float sum = 0;
            for (unsigned d = 0; d < dim; d++) sum = added(sum, values[size_t(r) * dim + d], queries[size_t(q) * dim + d]);
            const u64 packed = is_live(first_row + r) ? key(sum, first_row + r) : NOTHING;
            require(keys[size_t(q) * rows + r] == packed, "a key differs");
            expected[q].push_back(packed);
        }
        std::sort(expected[q].begin(), expected[q].end());
    }
    u64 *from = keys.data(), *to = fewer.data();
    for (unsigned input = rows;;) {
        const unsigned segments = up(input, WIDTH);
        u64* out = segments == 1 ? list.data() : to;
        launch(segments, count, SORTERS, [&] { keep_lowest(from, input, input, keep, out, u64(segments) * keep); });
        if (segments == 1) break;
        input = segments * keep;
        std::swap(from, to);
    }
    for (unsigned q = 0; q < count; q++) {
        for (unsigned i = 0; i < keep; i++) {
            const u64 want = i < expected[q].size() ? expected[q][i] : NOTHING;
            require(list[size_t(q) * keep + i] == want, "a selected key differs");
        }
    }
}

int main() {
    for (unsigned dim : {1u, 3u, 4u, 5u, 255u, 256u, 257u, 770u}) {
        for (unsigned rows : {1u, 31u, 32u, 33u, 127u, 128u, 129u, 300u}) check(rows, dim, 1 + randomness() % 8, 10, 0, false);
    }
    for (unsigned rows : {2047u, 2048u, 2049u, 5000u, 20000u}) {
        for (unsigned keep : {1u, 10u, 512u}) {
            for (bool ties : {false, true}) check(rows, 3, keep == 512 ? 2 : 1, keep, 4096, ties);
        }
    }
    check(100, 8, 8, 512, 4294967040u - 128u, true);
    require(key(NAN, 0) > key(INFINITY, 0xfffffffeu) && key(NAN, 0xfffffffeu) < NOTHING, "NaN sorts elsewhere");
    std::printf("%s: kernels agree with plain loops\n", kernel_metric);
}
