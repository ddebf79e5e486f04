/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * C interface of the niclab user library. Generated from src/capi.rs; do not edit.
 *
  * Calls return NICLAB_OK or a negative NICLAB_ERROR_ code; niclab_last_error() has the details. Use a handle in one
  * thread at a time. Timeouts are microseconds of wall time; a negative timeout waits as long as the device lives.
 * Link with libniclab_user.a, or with `pkg-config niclab`.
 */

#ifndef NICLAB_H
#define NICLAB_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Success.
 */
#define NICLAB_OK 0

/**
 * The device does not exist, cannot be opened, or is not a niclab NIC.
 */
#define NICLAB_ERROR_NO_DEVICE -1

/**
 * Device and library do not match: another ABI version, or the NIC lacks the requested feature.
 */
#define NICLAB_ERROR_MISMATCH -2

/**
 * The port is in use.
 */
#define NICLAB_ERROR_BUSY -3

/**
 * A value is out of its range, or a pointer is null.
 */
#define NICLAB_ERROR_VALUE -4

/**
 * The driver or the device refused the operation.
 */
#define NICLAB_ERROR_REFUSED -5

/**
 * Nothing arrived before the timeout.
 */
#define NICLAB_ERROR_TIMEOUT -6

/**
 * The device is gone: close the handles.
 */
#define NICLAB_ERROR_GONE -7

/**
 * Try again later: no room in the page, or no message.
 */
#define NICLAB_ERROR_AGAIN -8

/**
 * A fault of the device, its driver or this library.
 */
#define NICLAB_ERROR_INTERNAL -9

/**
 * Message flag: the sender's status reports when the message has left.
 */
#define NICLAB_NOTIFY 1

/**
 * Message flag: the receiving NIC interrupts its host.
 */
#define NICLAB_INTERRUPT 2

/**
 * Message flag: the receiving NIC sends an acknowledgement once the message is stored.
 */
#define NICLAB_ACKNOWLEDGE 4

/**
 * Any free port.
 */
#define NICLAB_ANY_PORT UINT32_MAX

/**
 * Wait policy: poll continuously.
 */
#define NICLAB_SPIN 0

/**
 * Wait policy: sleep until an interrupt.
 */
#define NICLAB_BLOCK 1

/**
 * Wait policy: poll for 100 microseconds, then sleep. The default policy of a port.
 */
#define NICLAB_ADAPTIVE 2

/**
 * Any free ports.
 */
#define GRIM_ANY_PORT 4294967295

/**
 * grim_register_handler(): the keeper of the handler list chooses the number.
 */
#define GRIM_ANY_NUMBER 0

/**
 * Handlers below this number are predefined.
 */
#define GRIM_FIRST_HANDLER 32

/**
 * Maximum bytes of a message's payload.
 */
#define GRIM_MAX_BULK_BYTES 49152

/**
 * Event: the card has read a message completely; its memory may be reused.
 */
#define NICLAB_INIC_SENT 1

/**
 * Event: a message was stored in posted memory.
 */
#define NICLAB_INIC_RECEIVED 2

/**
 * Event: a command was refused.
 */
#define NICLAB_INIC_REFUSED 3

/**
 * Event: a message was not delivered, and the card does not try again.
 */
#define NICLAB_INIC_FAILED 4

/**
 * Event: a barrier, a multicast or a reduction has ended; the result shows whether it succeeded.
 */
#define NICLAB_INIC_DONE 5

/**
 * Operator of a reduction: sum. Integers wrap.
 */
#define NICLAB_INIC_SUM 1

/**
 * Operator of a reduction: minimum.
 */
#define NICLAB_INIC_MIN 2

/**
 * Operator of a reduction: maximum.
 */
#define NICLAB_INIC_MAX 3

/**
 * Values of a reduction: int32_t.
 */
#define NICLAB_INIC_SIGNED_32 1

/**
 * Values of a reduction: int64_t.
 */
#define NICLAB_INIC_SIGNED_64 2

/**
 * Values of a reduction: uint32_t.
 */
#define NICLAB_INIC_UNSIGNED_32 3

/**
 * Values of a reduction: uint64_t.
 */
#define NICLAB_INIC_UNSIGNED_64 4

/**
 * Values of a reduction: double.
 */
#define NICLAB_INIC_DOUBLE 5

/**
 * Node for niclab_inic_set_rules(): messages from any node.
 */
#define NICLAB_INIC_ANY_NODE 4294967295

/**
 * Source of a match entry: any node.
 */
#define NICLAB_MATCH_ANY UINT32_MAX

/**
 * No counter.
 */
#define NICLAB_MATCH_NO_COUNTER UINT32_MAX

/**
 * Threshold of a match entry: any number of operations.
 */
#define NICLAB_MATCH_PERSISTENT UINT32_MAX

/**
 * Flag of a put: the receiving NIC interrupts its host.
 */
#define NICLAB_MATCH_INTERRUPT 1

/**
 * Flag of a put: the event NICLAB_MATCH_ACKNOWLEDGED reports its result.
 */
#define NICLAB_MATCH_ACK 2

/**
 * Flag of a put: the event NICLAB_MATCH_SENT reports when the memory may be reused.
 */
#define NICLAB_MATCH_NOTIFY 4

/**
 * Flag of a put, a get and an entry: successes are counted, without events.
 */
#define NICLAB_MATCH_COUNT_ONLY 8

/**
 * Flag of an entry: accepts puts.
 */
#define NICLAB_MATCH_PUTS 16

/**
 * Flag of an entry: accepts gets.
 */
#define NICLAB_MATCH_GETS 32

/**
 * Flag of an entry: the initiator chooses the offset.
 */
#define NICLAB_MATCH_REMOTE_OFFSET 64

/**
 * Flag of an entry: it is unlinked once fewer than min_free bytes are left. No effect with NICLAB_MATCH_TRUNCATE.
 */
#define NICLAB_MATCH_MIN_FREE 128

/**
 * Flag of an entry: truncates messages that are too long.
 */
#define NICLAB_MATCH_TRUNCATE 256

/**
 * Flag of an entry: appends it to the overflow list.
 */
#define NICLAB_MATCH_OVERFLOW 512

/**
 * Flag of an entry: no event when the NIC unlinks it.
 */
#define NICLAB_MATCH_NO_UNLINK_EVENT 1024

/**
 * Event: a message was stored in a posted entry.
 */
#define NICLAB_MATCH_PUT 1

/**
 * Event: a message was stored in an overflow entry.
 */
#define NICLAB_MATCH_UNEXPECTED 2

/**
 * Event: a new entry has claimed an earlier message; it is in the overflow entry's memory.
 */
#define NICLAB_MATCH_CLAIMED 3

/**
 * Event: a get has read an entry.
 */
#define NICLAB_MATCH_GET 4

/**
 * Event: all of a put has left the memory.
 */
#define NICLAB_MATCH_SENT 5

/**
 * Event: a put was stored at the receiver, or failed.
 */
#define NICLAB_MATCH_ACKNOWLEDGED 6

/**
 * Event: the data of a get was stored, or the get failed.
 */
#define NICLAB_MATCH_REPLY 7

/**
 * Event: an entry is not linked any more.
 */
#define NICLAB_MATCH_UNLINKED 8

/**
 * Event: a command was refused.
 */
#define NICLAB_MATCH_REFUSED 9

/**
 * An active port.
 */
typedef struct gamma_port gamma_port;

/**
 * The channels of a program, with its handlers.
 */
typedef struct grim grim;

/**
 * The queue by which a running handler sends.
 */
typedef struct grim_queue grim_queue;

/**
 * A NIC.
 */
typedef struct niclab_device niclab_device;

/**
 * An open port of an INIC NIC.
 */
typedef struct niclab_inic_port niclab_inic_port;

/**
 * An open port of a Match NIC.
 */
typedef struct niclab_match_port niclab_match_port;

/**
 * Memory registered for a port.
 */
typedef struct niclab_region niclab_region;

/**
 * An open port of an ULTRA NIC.
 */
typedef struct niclab_ultra_port niclab_ultra_port;

/**
 * Properties of a NIC.
 */
typedef struct {
  /**
   * This node's number, from 0.
   */
  uint32_t node;
  /**
   * Nodes of the cluster.
   */
  uint32_t nodes;
  /**
   * Ports that can be open at a time.
   */
  uint32_t ports;
  /**
   * Maximum number of slices of a port's receive queue.
   */
  uint32_t max_slices;
} niclab_info;

/**
 * A received message.
 */
typedef struct {
  /**
   * The payload; only the first `words` words are valid.
   */
  uint64_t payload[8];
  /**
   * The tag.
   */
  uint64_t tag[2];
  /**
   * Payload words, 0 to 8.
   */
  uint32_t words;
  /**
   * NICLAB_INTERRUPT and NICLAB_ACKNOWLEDGE as the sender set them.
   */
  uint32_t flags;
  /**
   * Node that sent it.
   */
  uint32_t source_node;
  /**
   * Its port.
   */
  uint32_t source_port;
} niclab_message;

/**
 * A message, as passed to a handler.
 */
typedef struct {
  /**
   * Its bytes, valid until the handler returns; null if it is empty.
   */
  const void *data;
  /**
   * Number of bytes.
   */
  uint64_t bytes;
  /**
   * Its number among the port's messages and errors, from 1.
   */
  uint64_t number;
  /**
   * Node that sent it.
   */
  uint32_t source_node;
  /**
   * Its port.
   */
  uint32_t source_port;
} gamma_message;

/**
 * A receiver handler. It runs in the process that owns the port, while the process polls.
 */
typedef void (*gamma_handler)(const gamma_message *message, void *user);

/**
 * A message, as passed to a handler.
 */
typedef struct {
  /**
   * Its payload, in place; null if it is empty. It may be overwritten once the handler has returned.
   */
  const void *payload;
  /**
   * Bytes of the payload.
   */
  uint64_t bytes;
  /**
   * Number of the handler.
   */
  uint32_t handler;
  /**
   * Four integers.
   */
  uint32_t arguments[4];
  /**
   * Node that sent it.
   */
  uint32_t source_node;
  /**
   * The sender's channel: its port.
   */
  uint32_t source_port;
  /**
   * The port that received it.
   */
  uint32_t target_port;
} grim_message;

/**
 * A handler. It sends with grim_queue_short() and grim_queue_bulk(). It must not call other functions of the library
 * with the handle that is polled.
 */
typedef void (*grim_handler)(grim_queue *send_queue, const grim_message *message, void *user);

/**
 * An event.
 */
typedef struct {
  /**
   * User value of the command.
   */
  uint64_t user;
  /**
   * Bytes of the message.
   */
  uint64_t bytes;
  /**
   * Bytes transferred.
   */
  uint64_t moved_bytes;
  /**
   * Number of the message among those from its sender to its receiver, from 1; 0 if the card does not count them.
   */
  uint64_t message;
  /**
   * Received message: source node. NICLAB_INIC_DONE: the group. Otherwise: target node.
   */
  uint32_t node;
  /**
   * Kind of event: NICLAB_INIC_SENT and so on.
   */
  uint32_t kind;
  /**
   * 0: done; 1: done, but truncated; other values: failed, see niclab_inic_result_text().
   */
  uint32_t result;
} niclab_inic_event;

/**
 * A match entry to append.
 */
typedef struct {
  /**
   * Registered memory.
   */
  const niclab_region *region;
  /**
   * Offset of the entry's memory in the region.
   */
  uint64_t offset;
  /**
   * Number of bytes.
   */
  uint64_t bytes;
  /**
   * Match bits.
   */
  uint64_t match_bits;
  /**
   * Match bits to ignore.
   */
  uint64_t ignore_bits;
  /**
   * A word that the events of this entry return.
   */
  uint64_t user;
  /**
   * Minimum number of free bytes, with NICLAB_MATCH_MIN_FREE.
   */
  uint64_t min_free;
  /**
   * The portal.
   */
  uint32_t portal;
  /**
   * Only accept messages from this node, or NICLAB_MATCH_ANY.
   */
  uint32_t source_node;
  /**
   * Only accept messages from this port, or NICLAB_MATCH_ANY.
   */
  uint32_t source_port;
  /**
   * Operations after which it is unlinked, or NICLAB_MATCH_PERSISTENT.
   */
  uint32_t threshold;
  /**
   * Counter for its operations.
   */
  uint32_t counter;
  /**
   * NICLAB_MATCH_ flags.
   */
  uint32_t flags;
} niclab_match_entry;

/**
 * A put or a get. Set unused fields to zero, and `counter` to NICLAB_MATCH_NO_COUNTER if unused.
 */
typedef struct {
  /**
   * Registered memory.
   */
  const niclab_region *region;
  /**
   * Offset of the first byte in the region.
   */
  uint64_t offset;
  /**
   * Number of bytes.
   */
  uint64_t bytes;
  /**
   * Match bits.
   */
  uint64_t match_bits;
  /**
   * A word for the receiver's event.
   */
  uint64_t header_data;
  /**
   * A word that the events of this command return.
   */
  uint64_t user;
  /**
   * Offset in the entry's memory, if the entry has NICLAB_MATCH_REMOTE_OFFSET.
   */
  uint64_t remote_offset;
  /**
   * Target node.
   */
  uint32_t node;
  /**
   * Its port.
   */
  uint32_t port;
  /**
   * Portal of the target port.
   */
  uint32_t portal;
  /**
   * Counter for results.
   */
  uint32_t counter;
  /**
   * NICLAB_MATCH_ flags.
   */
  uint32_t flags;
} niclab_match_transfer;

/**
 * An event.
 */
typedef struct {
  /**
   * User value of the entry, or of the command.
   */
  uint64_t user;
  /**
   * Match bits of the message.
   */
  uint64_t match_bits;
  /**
   * Header data of the put.
   */
  uint64_t header_data;
  /**
   * Bytes that the initiator requested.
   */
  uint64_t requested_bytes;
  /**
   * Bytes transferred.
   */
  uint64_t moved_bytes;
  /**
   * Offset of the first byte in the memory of the entry, the overflow entry, or the command.
   */
  uint64_t offset;
  /**
   * With NICLAB_MATCH_CLAIMED: the user value of the overflow entry.
   */
  uint64_t overflow_user;
  /**
   * With NICLAB_MATCH_CLAIMED: the handle of the overflow entry.
   */
  uint32_t overflow_handle;
  /**
   * Kind of event: NICLAB_MATCH_PUT and so on.
   */
  uint32_t kind;
  /**
   * 0: done; 1: done, but truncated; other values: failed, see niclab_match_result_text().
   */
  uint32_t result;
  /**
   * Handle of the entry or the command.
   */
  uint32_t handle;
  /**
   * Node that sent the message.
   */
  uint32_t node;
  /**
   * Its port.
   */
  uint32_t port;
  /**
   * The portal.
   */
  uint32_t portal;
} niclab_match_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns a short English text for an error code; never null, valid forever.
 */
const char *niclab_strerror(int error);

/**
 * Returns the full text of this thread's last error: the device, the operation and the fix. Never null; valid until
 * this thread's next call of this library.
 */
const char *niclab_last_error(void);

/**
 * Opens the NIC of the character device `path`, or the first NIC if `path` is null.
 *
 * # Safety
 *
 * `path` must be null or a C string, `device` null or valid for a store.
 */
int niclab_open(const char *path, niclab_device **device);

/**
 * Closes a NIC; its ports stay open. Null is ignored.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, and must not be used again.
 */
void niclab_close(niclab_device *device);

/**
 * Reads the properties of the NIC.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `info` null or valid for a store.
 */
int niclab_get_info(const niclab_device *device, niclab_info *info);

/**
 * Opens port `number`, or any free port for NICLAB_ANY_PORT, with a receive queue of `slices` slices (a power of two
 * from 8 on; 0 for 256).
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `port` null or valid for a store.
 */
int niclab_ultra_open(const niclab_device *device,
                      uint32_t number,
                      uint32_t slices,
                      niclab_ultra_port **port);

/**
 * Closes a port. Messages that have not left are discarded. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open, and must not be used again.
 */
void niclab_ultra_close(niclab_ultra_port *port);

/**
 * Returns the port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open; for null the number is NICLAB_ANY_PORT.
 */
uint32_t niclab_ultra_number(const niclab_ultra_port *port);

/**
 * Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_set_wait_policy(niclab_ultra_port *port, int policy);

/**
 * Sets where the port sends.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_route(niclab_ultra_port *port, uint32_t node, uint32_t node_port);

/**
 * Authorizes a port of another node to send to this port, and reserves `credits` slices for it.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_authorize(niclab_ultra_port *port, uint32_t node, uint32_t node_port, uint32_t credits);

/**
 * Revokes the authorization of a port of another node.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_revoke(niclab_ultra_port *port, uint32_t node, uint32_t node_port);

/**
 * Begins a batch: until the matching niclab_ultra_end_batch(), messages and releases share doorbells, each of which is
 * an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
 * or flushes. A call that never waits does not ring it. Batches may be nested.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_begin_batch(niclab_ultra_port *port);

/**
 * Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_end_batch(niclab_ultra_port *port);

/**
 * Sends `words` (0 to 8) words of payload and a tag of two words. Flags are NICLAB_NOTIFY, NICLAB_INTERRUPT and
 * NICLAB_ACKNOWLEDGE. Waits for room up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open, `payload` valid for `words` words or `words` zero, `tag` null or
 * valid for two.
 */
int niclab_ultra_send(niclab_ultra_port *port,
                      const uint64_t *payload,
                      uint32_t words,
                      const uint64_t *tag,
                      uint32_t flags,
                      int64_t timeout_us);

/**
 * Receives a message. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open, `message` null or valid for a store.
 */
int niclab_ultra_receive(niclab_ultra_port *port,
                         niclab_message *message,
                         int64_t timeout_us);

/**
 * Waits up to `timeout_us` until all messages sent so far have left. The last one must carry NICLAB_NOTIFY or
 * NICLAB_ACKNOWLEDGE.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_flush(niclab_ultra_port *port, int64_t timeout_us);

/**
 * Opens active port `port`, or any free one for NICLAB_ANY_PORT, with `buffers` receive buffers, each for one message
 * of at most `buffer_bytes` bytes. `policy` is a wait policy.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `result` null or valid for a store.
 */
int gamma_open(const niclab_device *device,
               uint32_t port,
               uint32_t buffers,
               uint32_t buffer_bytes,
               int policy,
               gamma_port **result);

/**
 * Closes the port. Messages for it are dropped. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open, and must not be used again.
 */
void gamma_close(gamma_port *port);

/**
 * Begins a batch: until gamma_end_batch(), messages share notifications of the card, and gamma_send() need not wait
 * until its message has left. Its data must not change before gamma_end_batch() returns. Batches cannot be nested.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open.
 */
int gamma_begin_batch(gamma_port *port);

/**
 * Ends a batch: notifies the card, and waits up to `timeout_us` until all messages have left.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open.
 */
int gamma_end_batch(gamma_port *port, int64_t timeout_us);

/**
 * Sends a message from the program's memory to an active port of another node, and returns once the message has left;
 * in a batch, perhaps sooner. Waits up to `timeout_us` while the window does not allow it.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open, `data` null or valid for reads of `bytes`.
 */
int gamma_send(gamma_port *port,
               uint32_t node,
               uint32_t target_port,
               const void *data,
               uint64_t bytes,
               int64_t timeout_us);

/**
 * Calls the handler for all received messages, or waits for the first up to `timeout_us`; with 0 it does not wait.
 * Stores the number of messages in `handled`, unless that is null. An error reports a loss; the port remains usable.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open, `handler` null or a function that takes `user`, `handled` null or valid for
 * a store.
 */
int gamma_poll(gamma_port *port,
               gamma_handler handler,
               void *user,
               uint64_t *handled,
               int64_t timeout_us);

/**
 * Enables the library for a program: opens `channels` logical channels, from port `first_port` on, or on any ports for
 * GRIM_ANY_PORT. The channel at port `keeper_port` of node `keeper_node` keeps the list of all handlers. It must be
 * the same for all programs of the cluster.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `result` null or valid for a store.
 */
int grim_enable(const niclab_device *device,
                uint32_t first_port,
                uint32_t channels,
                uint32_t keeper_node,
                uint32_t keeper_port,
                grim **result);

/**
 * Closes the channels. Messages that have not left are discarded (see grim_flush()). Null is ignored.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, and must not be used again.
 */
void grim_disable(grim *handle);

/**
 * Sets how calls wait: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_set_wait_policy(grim *handle, int policy);

/**
 * Registers a handler, at any time. With GRIM_ANY_NUMBER it gets its number in grim_synch_handlers().
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `name` null or a string. `handler` is called with `user` by calls of the
 * handle until it is disabled.
 */
int grim_register_handler(grim *handle,
                          const char *name,
                          uint32_t number,
                          grim_handler handler,
                          void *user);

/**
 * Adds the registered handlers to the cluster's list, and waits for that up to `timeout_us`. The program that keeps
 * the list must poll. niclab_last_error() names handlers that could not be merged.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_synch_handlers(grim *handle,
                        int64_t timeout_us);

/**
 * Returns the number of a handler. Waits up to `timeout_us` until it is in the list; with 0 it does not wait, but
 * fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `name` null or a string, `number` null or valid for a store.
 */
int grim_get_handler_by_name(grim *handle,
                             const char *name,
                             uint32_t *number,
                             int64_t timeout_us);

/**
 * Begins a batch: until the matching grim_end_batch(), messages and releases share doorbells, each of which is an
 * exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
 * or flushes. A call that never waits does not ring it. Batches may be nested.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_begin_batch(grim *handle);

/**
 * Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_end_batch(grim *handle);

/**
 * Sends four integers for a handler of the endpoint at `node` and `port`, through channel `channel`, counted from 0.
 * Waits for room up to `timeout_us`, and runs handlers while it waits.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `arguments` null or valid for four integers.
 */
int grim_send_short(grim *handle,
                    uint32_t channel,
                    uint32_t node,
                    uint32_t port,
                    uint32_t handler,
                    const uint32_t *arguments,
                    int64_t timeout_us);

/**
 * As grim_send_short(), with a payload of up to GRIM_MAX_BULK_BYTES. The payload may be reused after the call.
 *
 * # Safety
 *
 * As grim_send_short; `payload` must be null or valid for reads of `bytes`.
 */
int grim_send_bulk(grim *handle,
                   uint32_t channel,
                   uint32_t node,
                   uint32_t port,
                   uint32_t handler,
                   const uint32_t *arguments,
                   const void *payload,
                   uint64_t bytes,
                   int64_t timeout_us);

/**
 * Copies `bytes` bytes, without a limit, to `offset` of the region that the program at `node` and `port` exposed by
 * this name. That program is not notified; a later message on the same channel arrives after the bytes and can notify
 * it. Waits as grim_send_short() does.
 *
 * # Safety
 *
 * As grim_send_bulk.
 */
int grim_send_memory(grim *handle,
                     uint32_t channel,
                     uint32_t node,
                     uint32_t port,
                     uint32_t region,
                     uint64_t offset,
                     const void *memory,
                     uint64_t bytes,
                     int64_t timeout_us);

/**
 * Runs the handlers of all received messages, or waits for the first up to `timeout_us`; with 0 it does not wait.
 * Stores the number of messages in `handled`, unless that is null. An error reports a problem since the last call; the
 * channels remain usable.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `handled` null or valid for a store.
 */
int grim_poll(grim *handle,
              uint32_t *handled,
              int64_t timeout_us);

/**
 * Waits up to `timeout_us` until all sent messages have left, and runs handlers while it waits.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_flush(grim *handle, int64_t timeout_us);

/**
 * Allocates and registers at least `bytes` bytes of zeroed memory for a channel, and lets memory messages write to it.
 * Senders address it by `name`. niclab_region_memory() returns its address, and niclab_region_release() frees it.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `region` and `name` null or valid for a store.
 */
int grim_expose(grim *handle,
                uint32_t channel,
                uint64_t bytes,
                niclab_region **region,
                uint32_t *name);

/**
 * As grim_send_short(), for handlers. A message without room waits in a queue. If the queue is full, the call fails
 * with NICLAB_ERROR_REFUSED.
 *
 * # Safety
 *
 * `send_queue` must be null or the handler's argument, `arguments` null or valid for four integers.
 */
int grim_queue_short(grim_queue *send_queue,
                     uint32_t channel,
                     uint32_t node,
                     uint32_t port,
                     uint32_t handler,
                     const uint32_t *arguments);

/**
 * As grim_send_bulk(), for handlers.
 *
 * # Safety
 *
 * As grim_queue_short; `payload` must be null or valid for reads of `bytes`.
 */
int grim_queue_bulk(grim_queue *send_queue,
                    uint32_t channel,
                    uint32_t node,
                    uint32_t port,
                    uint32_t handler,
                    const uint32_t *arguments,
                    const void *payload,
                    uint64_t bytes);

/**
 * Returns an English text for the result of an event; never null, valid forever.
 */
const char *niclab_inic_result_text(uint32_t result);

/**
 * Opens port `number`, or any free port for NICLAB_ANY_PORT, with a queue of `events` events (a power of two from 8
 * on; 0 for 256).
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `port` null or valid for a store.
 */
int niclab_inic_open(const niclab_device *device,
                     uint32_t number,
                     uint32_t events,
                     niclab_inic_port **port);

/**
 * Closes a port once its regions are released too. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, and must not be used again.
 */
void niclab_inic_close(niclab_inic_port *port);

/**
 * Returns the port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open; for null the number is NICLAB_ANY_PORT.
 */
uint32_t niclab_inic_number(const niclab_inic_port *port);

/**
 * Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open.
 */
int niclab_inic_set_wait_policy(niclab_inic_port *port, int policy);

/**
 * Allocates and registers at least `bytes` bytes of zeroed memory. niclab_region_memory() returns its address.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `region` null or valid for a store.
 */
int niclab_inic_allocate(const niclab_inic_port *port,
                         uint64_t bytes,
                         niclab_region **region);

/**
 * Registers memory of the program. Its address and its length must be multiples of 8. The program must not free it
 * before niclab_region_release(), nor afterwards if the device was gone by then (NICLAB_ERROR_GONE).
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `region` null or valid for a store, `memory` null or valid for reads
 * and writes of `bytes` bytes for as long as stated above. The program reads memory that the NIC writes only after its
 * event.
 */
int niclab_inic_register(const niclab_inic_port *port,
                         void *memory,
                         uint64_t bytes,
                         niclab_region **region);

/**
 * Begins a batch: until the matching niclab_inic_end_batch(), messages and releases share doorbells, each of which is
 * an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
 * or flushes. A call that never waits does not ring it. Batches may be nested.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open.
 */
int niclab_inic_begin_batch(niclab_inic_port *port);

/**
 * Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open.
 */
int niclab_inic_end_batch(niclab_inic_port *port);

/**
 * Sends `bytes` bytes of a region from `offset` on to `node`; a multiple of 4, and not 0. With `tells`, the event
 * NICLAB_INIC_SENT reports when the memory may be reused. Waits for room up to `timeout_us`; with 0 it does not wait,
 * but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `region` null or from this library.
 */
int niclab_inic_send(niclab_inic_port *port,
                     uint32_t node,
                     const niclab_region *region,
                     uint64_t offset,
                     uint64_t bytes,
                     uint64_t user,
                     bool tells,
                     int64_t timeout_us);

/**
 * Posts `bytes` bytes of a region from `offset` on, a multiple of 4 and not 0, for one message from any node. With
 * `interrupts`, the NIC interrupts when the message's event is stored. Waits for room as niclab_inic_send() does.
 *
 * # Safety
 *
 * As niclab_inic_send.
 */
int niclab_inic_receive(niclab_inic_port *port,
                        const niclab_region *region,
                        uint64_t offset,
                        uint64_t bytes,
                        uint64_t user,
                        bool interrupts,
                        int64_t timeout_us);

/**
 * Sets the rules by which the NIC interrupts, in addition to receives that request it. `chunk_bytes`: an interrupt for
 * each such number of bytes received. `at_end`: at the end of a message, for bytes below that number.
 * `min_message_bytes`: an interrupt for each message of at least this length. `node`: messages of this node only, or
 * NICLAB_INIC_ANY_NODE. 0 disables a rule.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open.
 */
int niclab_inic_set_rules(const niclab_inic_port *port,
                          uint64_t chunk_bytes,
                          bool at_end,
                          uint64_t min_message_bytes,
                          uint32_t node);

/**
 * Creates a group of `count` nodes including this one, in the same order at every member. Without nodes, removes it.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `nodes` valid for reads of `count` numbers, or null if there are none.
 */
int niclab_inic_group(const niclab_inic_port *port,
                      uint32_t group,
                      const uint32_t *nodes,
                      uint32_t count);

/**
 * Waits for all members of a group: the event NICLAB_INIC_DONE reports that all have reached the barrier. With
 * `interrupts`, the NIC then interrupts. Waits for room as niclab_inic_send() does.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open.
 */
int niclab_inic_barrier(niclab_inic_port *port,
                        uint32_t group,
                        uint64_t user,
                        bool interrupts,
                        int64_t timeout_us);

/**
 * Sends `bytes` bytes of a region from `offset` on to all other members of a group, each of which must have posted
 * memory. The event NICLAB_INIC_DONE reports that all have received it. Otherwise as niclab_inic_barrier().
 *
 * # Safety
 *
 * As niclab_inic_send.
 */
int niclab_inic_multicast(niclab_inic_port *port,
                          uint32_t group,
                          const niclab_region *region,
                          uint64_t offset,
                          uint64_t bytes,
                          uint64_t user,
                          bool interrupts,
                          int64_t timeout_us);

/**
 * Combines `bytes` bytes of values of a region from `offset` on with those of all other members, by NICLAB_INIC_SUM,
 * NICLAB_INIC_MIN or NICLAB_INIC_MAX. The event NICLAB_INIC_DONE reports that the result has replaced the values.
 * Otherwise as niclab_inic_barrier().
 *
 * # Safety
 *
 * As niclab_inic_send.
 */
int niclab_inic_reduce(niclab_inic_port *port,
                       uint32_t group,
                       const niclab_region *region,
                       uint64_t offset,
                       uint64_t bytes,
                       uint32_t operator_,
                       uint32_t element,
                       uint64_t user,
                       bool interrupts,
                       int64_t timeout_us);

/**
 * Receives an event. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `event` null or valid for a store.
 */
int niclab_inic_next_event(niclab_inic_port *port,
                           niclab_inic_event *event,
                           int64_t timeout_us);

/**
 * Returns an English text for the result of an event; never null, valid forever.
 */
const char *niclab_match_result_text(uint32_t result);

/**
 * Opens port `number`, or any free port for NICLAB_ANY_PORT, with a queue of `events` events (a power of two from 8
 * on; 0 for 256).
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `port` null or valid for a store.
 */
int niclab_match_open(const niclab_device *device,
                      uint32_t number,
                      uint32_t events,
                      niclab_match_port **port);

/**
 * Closes a port once its regions are released too. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, and must not be used again.
 */
void niclab_match_close(niclab_match_port *port);

/**
 * Returns the port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open; for null the number is NICLAB_ANY_PORT.
 */
uint32_t niclab_match_number(const niclab_match_port *port);

/**
 * Sets how the port waits: NICLAB_SPIN, NICLAB_BLOCK or NICLAB_ADAPTIVE.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open.
 */
int niclab_match_set_wait_policy(niclab_match_port *port, int policy);

/**
 * Allocates and registers at least `bytes` bytes of zeroed memory. niclab_region_memory() returns its address.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `region` null or valid for a store.
 */
int niclab_match_allocate(const niclab_match_port *port,
                          uint64_t bytes,
                          niclab_region **region);

/**
 * Registers memory of the program. Its address and its length must be multiples of 8. The program must not free it
 * before niclab_region_release(), nor afterwards if the device was gone by then (NICLAB_ERROR_GONE).
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `region` null or valid for a store, `memory` null or valid for reads
 * and writes of `bytes` bytes for as long as stated above. The program reads memory that the NIC writes only after its
 * event.
 */
int niclab_match_register(const niclab_match_port *port,
                          void *memory,
                          uint64_t bytes,
                          niclab_region **region);

/**
 * Begins a batch: until the matching niclab_match_end_batch(), messages and releases share doorbells, each of which is
 * an exit from the virtual machine. A deferred doorbell is rung when the page is full, and before any call that waits
 * or flushes. A call that never waits does not ring it. Batches may be nested.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open.
 */
int niclab_match_begin_batch(niclab_match_port *port);

/**
 * Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open.
 */
int niclab_match_end_batch(niclab_match_port *port);

/**
 * Appends a match entry and stores its handle in `handle`, unless that is null. Waits for room up to `timeout_us`;
 * with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `entry` null or valid with its region, `handle` null or valid for a
 * store.
 */
int niclab_match_append(niclab_match_port *port,
                        const niclab_match_entry *entry,
                        uint32_t *handle,
                        int64_t timeout_us);

/**
 * Unlinks an entry: the event NICLAB_MATCH_UNLINKED confirms it. Waits for room as niclab_match_append() does.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open.
 */
int niclab_match_unlink(niclab_match_port *port,
                        uint32_t entry,
                        int64_t timeout_us);

/**
 * Puts bytes into the first matching entry of a portal. Waits for room as niclab_match_append() does.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `put` null or valid with its region, `handle` null or valid for a
 * store.
 */
int niclab_match_put(niclab_match_port *port,
                     const niclab_match_transfer *put,
                     uint32_t *handle,
                     int64_t timeout_us);

/**
 * Gets bytes from the first matching entry of a portal: the event NICLAB_MATCH_REPLY reports when they are stored.
 * Waits for room as niclab_match_append() does.
 *
 * # Safety
 *
 * As niclab_match_put.
 */
int niclab_match_get(niclab_match_port *port,
                     const niclab_match_transfer *get,
                     uint32_t *handle,
                     int64_t timeout_us);

/**
 * Receives an event. Waits for it up to `timeout_us`; with 0 it does not wait, but fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `event` null or valid for a store.
 */
int niclab_match_next_event(niclab_match_port *port,
                            niclab_match_event *event,
                            int64_t timeout_us);

/**
 * Reads a counter. Waits up to `timeout_us` until it has `successes` successes or another failure; with 0 it does not
 * wait. Stores each result at its pointer, unless that is null.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `found` and `failures` null or valid for a store.
 */
int niclab_match_counter(niclab_match_port *port,
                         uint32_t counter,
                         uint64_t successes,
                         uint64_t *found,
                         uint64_t *failures,
                         int64_t timeout_us);

/**
 * Deregisters memory. The NIC does not access the memory after the call. It unlinks match entries that use the
 * memory, without an event. The call ignores a null pointer.
 *
 * # Safety
 *
 * `region` must be null or from this library, and must not be used again.
 */
void niclab_region_release(niclab_region *region);

/**
 * Returns the address of a region's memory, or null if `region` is null.
 *
 * # Safety
 *
 * `region` must be null or from this library.
 */
void *niclab_region_memory(const niclab_region *region);

/**
 * Returns the size of a region in bytes, or 0 if `region` is null.
 *
 * # Safety
 *
 * `region` must be null or from this library.
 */
uint64_t niclab_region_bytes(const niclab_region *region);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NICLAB_H */
