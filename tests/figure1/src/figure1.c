/*
 * Figure 1 of "An Architecture to Perform NIC Based MPI Matching", line by line as printed, between the two rules
 * below, with its line numbers at the right. The functions that it calls but does not show are before it; the update of
 * entries is after it. Both follow the paper's text, and no other file of this project.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "figure1.h"

/* The figure compares "ANY" with the node and with the process; both have its width here. */
#define ANY UINT32_MAX
#define PTL_MSG_PUT 1
#define PTL_MSG_GET 2

struct user_me {
    uint64_t match_bits;
    uint64_t dont_ignore_bits;
    uint32_t match_id_nid;
    uint32_t match_id_pid;
};

struct user_md {
    uint64_t length;
    uint64_t max_size;
    uint32_t threshold;
    uint8_t options;
};

struct memd {
    struct user_me me;
    struct user_md md;
    uint64_t local_offset;
    size_t place;
    struct memd *next;
};

struct ptlhdr {
    uint64_t match;
    uint64_t length;
    uint64_t remote_offset;
    uint32_t initiator_pid;
    uint32_t op;
};

static int md_valid(const struct memd *memd) { return memd->md.options & FIGURE1_VALID; }
static int respond_to_puts(const struct user_md *md) { return md->options & FIGURE1_PUTS; }
static int respond_to_gets(const struct user_md *md) { return md->options & FIGURE1_GETS; }
static int use_remote_offset(const struct user_md *md) { return md->options & FIGURE1_REMOTE_OFFSET; }
static int use_max_size(const struct user_md *md) { return md->options & FIGURE1_MAX_SIZE; }
static int allow_truncation(const struct user_md *md) { return md->options & FIGURE1_TRUNCATION; }
static uint64_t get_length(const struct user_md *md) { return md->length; }
static uint64_t get_max_size(const struct user_md *md) { return md->max_size; }
static uint64_t get_remote_offset(const struct ptlhdr *hdr) { return hdr->remote_offset; }
static uint64_t get_implicit_offset(const struct memd *memd) { return memd->local_offset; }

/* ------------------------------------------------------------------------------------------------------------------- */

    struct memd*
match(struct memd* memd, const struct ptlhdr * hdr, uint32_t src_nid, /* IN */                                    /*  2 */
    uint64_t* offset, uint32_t* mlength /* OUT */) {
                                                                                                                  /*  4 */
    /* Loop through ME list, looking for a match */
    struct memd* current;                                                                                         /*  6 */
    for ( current = memd; current != NULL ; current = current->next ) {
        struct user_me *me = &current->me; struct user_md *md = &current->md;                                     /*  8 */

        /* Check the match bits */                                                                                /* 10 */
        if ((me->match_bits ^ hdr->match) & me->dont_ignore_bits) continue;
                                                                                                                  /* 12 */
        /* Check the match id NID and PID */
        if (me->match_id_nid != ANY && me->match_id_nid != src_nid) continue;                                     /* 14 */
        if (me->match_id_pid != ANY && me->match_id_pid != hdr->initiator_pid) continue;
                                                                                                                  /* 16 */
        /* The MD must be valid and must be active (non-zero threshold)*/
        if (!md_valid(current) || !md->threshold) continue;                                                       /* 18 */

        /* MD must be configured to respond to the incoming operation type */                                     /* 20 */
        if (hdr->op == PTL_MSG_PUT && !respond_to_puts(md)) continue;
        else if (hdr->op == PTL_MSG_GET && !respond_to_gets(md)) continue;                                        /* 22 */

        /* Unpack the MD's length */                                                                              /* 24 */
        uint64_t md_len = get_length(md);
                                                                                                                  /* 26 */
        /* Calculate the effective offset */
        if ( use_remote_offset(md)) {                                                                             /* 28 */
            *offset = get_remote_offset(hdr);
            if (*offset >= md_len) *offset = md_len; /* clamp so math below works */                              /* 30 */
        } else {
            *offset = get_implicit_offset(current);                                                               /* 32 */
        }
                                                                                                                  /* 34 */
        /* Calculate the amount of space remaining in the MD */
        uint64_t remain = md_len - *offset;                                                                       /* 36 */

        /* MD is inactive if use_max_size() and remain is less than max_size */                                   /* 38 */
        if ( use_max_size(md) && !allow_truncation(md)) {
            uint64_t max_size = get_max_size(md);                                                                 /* 40 */
            if (remain < max_size) continue;
        }                                                                                                         /* 42 */

        /* Determine the length to receive into the MD */                                                         /* 44 */
        if (hdr->length <= remain) *mlength = hdr->length;
        else if ( allow_truncation(md)) *mlength = remain;                                                        /* 46 */
        else continue;
                                                                                                                  /* 48 */
        /* Set the offset output and return the match*/
        return current;                                                                                           /* 50 */
    }
return NULL; /* no match was found */                                                                             /* 52 */
}

/* ------------------------------------------------------------------------------------------------------------------- */

/*
 * Updates an entry that has taken `bytes` bytes: it counts down, and moves its offset if the entry gives the offset.
 * Returns whether no message can match the entry any more; it is then unlinked.
 */
static int is_used_up(struct memd *memd, uint64_t bytes)
{
    struct user_md *md = &memd->md;
    int is_managed_here = !use_remote_offset(md);

    if (is_managed_here)
        memd->local_offset += bytes;
    if (md->threshold != FIGURE1_FOR_EVER && --md->threshold == 0)
        return 1;
    /* The check of lines 36 to 42, which is the same for every message. */
    return is_managed_here && use_max_size(md) && !allow_truncation(md) &&
           get_length(md) - memd->local_offset < get_max_size(md);
}

static struct memd entry_of(const struct figure1_entry *from, size_t place)
{
    struct memd memd = {
        .me = { from->match_bits, from->dont_ignore_bits, from->node, from->process },
        .md = { from->length, from->max_size, from->threshold, from->options },
        .local_offset = from->local_offset,
        .place = place,
    };
    return memd;
}

/*
 * Matches each message in order against the list. With `consumes`, an entry that takes a message counts down and may be
 * unlinked. An entry's `place` is its index in the list when the message arrived, from 0.
 */
int figure1_run(const struct figure1_entry *entries, size_t entry_count, const struct figure1_message *messages,
                size_t message_count, int consumes, struct figure1_result *results)
{
    struct memd *list = calloc(entry_count + 1, sizeof(*list)), *first = NULL, **link = &first;

    if (!list)
        return -1;
    for (size_t entry = 0; entry < entry_count; entry++) {
        list[entry] = entry_of(&entries[entry], entry);
        *link = &list[entry];
        link = &list[entry].next;
    }
    for (size_t message = 0; message < message_count; message++) {
        const struct figure1_message *from = &messages[message];
        struct ptlhdr hdr = { from->match_bits, from->length, from->remote_offset, from->process, from->operation };
        struct figure1_result *result = &results[message];
        struct memd *found = match(first, &hdr, from->node, &result->offset, &result->length);

        result->is_found = found != NULL;
        if (!found)
            continue;
        result->place = 0;
        for (link = &first; *link != found; link = &(*link)->next)
            result->place++;
        if (consumes && is_used_up(found, result->length))
            *link = found->next;
    }
    free(list);
    return 0;
}
