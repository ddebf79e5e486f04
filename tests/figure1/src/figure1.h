/* The interface between Rust and the C code of Figure 1; tests/figure1/src/lib.rs has the same definitions. */
#include <stddef.h>
#include <stdint.h>

#define FIGURE1_VALID 1
#define FIGURE1_PUTS 2
#define FIGURE1_GETS 4
#define FIGURE1_REMOTE_OFFSET 8
#define FIGURE1_MAX_SIZE 16
#define FIGURE1_TRUNCATION 32

/* A threshold that does not count down. */
#define FIGURE1_FOR_EVER UINT32_MAX

struct figure1_entry {
    uint64_t match_bits;
    uint64_t dont_ignore_bits;
    uint64_t length;
    uint64_t local_offset;
    uint64_t max_size;
    uint32_t node;
    uint32_t process;
    uint32_t threshold;
    uint8_t options;
};

struct figure1_message {
    uint64_t match_bits;
    uint64_t length;
    uint64_t remote_offset;
    uint32_t node;
    uint32_t process;
    uint32_t operation;
};

/* The target of a message, and the stored length. The figure's length has 32 bits. */
struct figure1_result {
    uint64_t place;
    uint64_t offset;
    uint32_t length;
    uint32_t is_found;
};
