/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * C interface of the niclab user library. Generated from src/capi.rs; do not edit.
 *
 * Calls return NICLAB_OK or a negative NICLAB_ERROR_ code; niclab_last_error() tells the whole story. A handle is used
 * by one thread at a time. Time-outs are microseconds of wall time; a negative one waits as long as the device lives.
 * Link with libniclab_user.a, or by `pkg-config niclab`.
 */

#ifndef NICLAB_H
#define NICLAB_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Done.
 */
#define NICLAB_OK 0

/**
 * There is no such device, it cannot be opened, or it is no niclab NIC.
 */
#define NICLAB_ERROR_NO_DEVICE -1

/**
 * Device and library do not go together: another ABI version, or a NIC that lacks what is wanted.
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
 * The driver or the device refused.
 */
#define NICLAB_ERROR_REFUSED -5

/**
 * Nothing came in time.
 */
#define NICLAB_ERROR_TIMEOUT -6

/**
 * The device is gone: close the handles.
 */
#define NICLAB_ERROR_GONE -7

/**
 * Not now: no room in the page, or no message.
 */
#define NICLAB_ERROR_AGAIN -8

/**
 * A fault of the device, its driver or this library.
 */
#define NICLAB_ERROR_INTERNAL -9

/**
 * Message flag: the sender's status tells as soon as the message left.
 */
#define NICLAB_NOTIFY 1

/**
 * Message flag: the receiving NIC interrupts its host.
 */
#define NICLAB_INTERRUPT 2

/**
 * Message flag: the receiving NIC answers once the message is stored.
 */
#define NICLAB_ACKNOWLEDGE 4

/**
 * Any free port.
 */
#define NICLAB_ANY_PORT UINT32_MAX

/**
 * Wait policy: look again and again.
 */
#define NICLAB_SPIN 0

/**
 * Wait policy: sleep until an interrupt.
 */
#define NICLAB_BLOCK 1

/**
 * Wait policy: look for 100 microseconds, then sleep. The policy of a port just opened.
 */
#define NICLAB_ADAPTIVE 2

/**
 * Any free ports.
 */
#define GRIM_ANY_PORT 4294967295

/**
 * grim_register_handler(): the keeper chooses the number.
 */
#define GRIM_ANY_NUMBER 0

/**
 * Handlers below this number are predefined.
 */
#define GRIM_FIRST_HANDLER 32

/**
 * Most bytes of the payload of a message.
 */
#define GRIM_MAX_BULK_BYTES 49152

/**
 * Event: the card has all data of a message, and needs its memory no more.
 */
#define NICLAB_INIC_SENT 1

/**
 * Event: a message is in the memory that was posted for it.
 */
#define NICLAB_INIC_RECEIVED 2

/**
 * Event: a command was refused.
 */
#define NICLAB_INIC_REFUSED 3

/**
 * Event: a message was not delivered, and the card has given up.
 */
#define NICLAB_INIC_FAILED 4

/**
 * Event: a barrier, a multicast or a reduction is over; the result says whether it is done.
 */
#define NICLAB_INIC_DONE 5

/**
 * A reduction's operator: the sum. Integers wrap.
 */
#define NICLAB_INIC_SUM 1

/**
 * The least.
 */
#define NICLAB_INIC_MIN 2

/**
 * The greatest.
 */
#define NICLAB_INIC_MAX 3

/**
 * A reduction's values: int32_t.
 */
#define NICLAB_INIC_SIGNED_32 1

/**
 * int64_t.
 */
#define NICLAB_INIC_SIGNED_64 2

/**
 * uint32_t.
 */
#define NICLAB_INIC_UNSIGNED_32 3

/**
 * uint64_t.
 */
#define NICLAB_INIC_UNSIGNED_64 4

/**
 * double.
 */
#define NICLAB_INIC_DOUBLE 5

/**
 * niclab_inic_set_rules: messages of any node.
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
 * Threshold of a match entry: takes any number of operations.
 */
#define NICLAB_MATCH_PERSISTENT UINT32_MAX

/**
 * Flag of a put: the receiving NIC interrupts its host.
 */
#define NICLAB_MATCH_INTERRUPT 1

/**
 * Flag of a put: NICLAB_MATCH_ACKNOWLEDGED tells what became of it.
 */
#define NICLAB_MATCH_ACK 2

/**
 * Flag of a put: NICLAB_MATCH_SENT tells when the memory may be used again.
 */
#define NICLAB_MATCH_NOTIFY 4

/**
 * Flag of a put, a get and an entry: successes are counted and not told by events.
 */
#define NICLAB_MATCH_COUNT_ONLY 8

/**
 * Flag of an entry: answers puts.
 */
#define NICLAB_MATCH_PUTS 16

/**
 * Flag of an entry: answers gets.
 */
#define NICLAB_MATCH_GETS 32

/**
 * Flag of an entry: the initiator says the offset.
 */
#define NICLAB_MATCH_REMOTE_OFFSET 64

/**
 * Flag of an entry: is unlinked once fewer than min_free bytes are left; with NICLAB_MATCH_TRUNCATE it says nothing.
 */
#define NICLAB_MATCH_MIN_FREE 128

/**
 * Flag of an entry: cuts messages that are too long.
 */
#define NICLAB_MATCH_TRUNCATE 256

/**
 * Flag of an entry: for the overflow list.
 */
#define NICLAB_MATCH_OVERFLOW 512

/**
 * Flag of an entry: no event when it unlinks itself.
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
 * Event: an entry just appended takes a message that had come before; it is in the overflow entry's memory.
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
 * Event: a put was stored at the receiver, or was not.
 */
#define NICLAB_MATCH_ACKNOWLEDGED 6

/**
 * Event: what a get asked for was stored, or could not be had.
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
 * What a handler sends by, while it runs.
 */
typedef struct grim_queue grim_queue;

/**
 * A NIC.
 */
typedef struct niclab_device niclab_device;

/**
 * The open port of a NIC that posts messages.
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
 * What a NIC says of itself.
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
   * Most slices of one port's receive queue.
   */
  uint32_t max_slices;
} niclab_info;

/**
 * A received message.
 */
typedef struct {
  /**
   * The payload; the first `words` count.
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
 * A message, as a handler sees it.
 */
typedef struct {
  /**
   * Its bytes, until the handler has returned; null without any.
   */
  const void *data;
  /**
   * How many they are.
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
 * A receiver handler. It runs in the process that owns the port, while that looks for messages.
 */
typedef void (*gamma_handler)(const gamma_message *message, void *user);

/**
 * A message, as a handler sees it.
 */
typedef struct {
  /**
   * Its payload, in place; null without any. It is overwritten once the handler has returned.
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
   * Its channel: the port.
   */
  uint32_t source_port;
  /**
   * The port that it came to.
   */
  uint32_t target_port;
} grim_message;

/**
 * A handler. It sends by grim_queue_short() and grim_queue_bulk(), and must not call anything else of the library
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
   * Bytes that were moved.
   */
  uint64_t moved_bytes;
  /**
   * Number of the message among those between both nodes, from 1; 0 where the card does not count them.
   */
  uint64_t message;
  /**
   * Node that sent what was received; of NICLAB_INIC_DONE the group; else the node that it was for.
   */
  uint32_t node;
  /**
   * NICLAB_INIC_SENT and the others.
   */
  uint32_t kind;
  /**
   * 0: done; 1: done, but cut; anything else: not done, niclab_inic_result_text() says why.
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
   * Where in it the entry's memory begins.
   */
  uint64_t offset;
  /**
   * How long it is.
   */
  uint64_t bytes;
  /**
   * Match bits.
   */
  uint64_t match_bits;
  /**
   * Bits of them that are not compared.
   */
  uint64_t ignore_bits;
  /**
   * A word that comes back with the events of this entry.
   */
  uint64_t user;
  /**
   * With NICLAB_MATCH_MIN_FREE.
   */
  uint64_t min_free;
  /**
   * The portal.
   */
  uint32_t portal;
  /**
   * Node that it takes messages of, or NICLAB_MATCH_ANY.
   */
  uint32_t source_node;
  /**
   * Port that it takes messages of, or NICLAB_MATCH_ANY.
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
 * What to put or get. All zeros but for what is wanted; counter NICLAB_MATCH_NO_COUNTER where none is.
 */
typedef struct {
  /**
   * Registered memory.
   */
  const niclab_region *region;
  /**
   * Where in it the bytes begin.
   */
  uint64_t offset;
  /**
   * How many.
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
   * A word that comes back with the events of this command.
   */
  uint64_t user;
  /**
   * Where in the entry's memory, if the entry leaves that to the initiator.
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
   * The portal of that.
   */
  uint32_t portal;
  /**
   * Counter for what is told.
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
   * Bytes that the initiator asked for.
   */
  uint64_t requested_bytes;
  /**
   * Bytes that were moved.
   */
  uint64_t moved_bytes;
  /**
   * Offset of the first in the memory of the entry, of the overflow entry, or of the command.
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
   * NICLAB_MATCH_PUT and the others.
   */
  uint32_t kind;
  /**
   * 0: done; 1: done, but cut; anything else: not done, niclab_match_result_text() says why.
   */
  uint32_t result;
  /**
   * The entry, or the command.
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
 * What kind of error `error` is, in English; never null. Valid for ever.
 */
const char *niclab_strerror(int error);

/**
 * The whole story of this thread's last error: which device, what was tried, what to do. Never null; valid until the
 * next call of this library by this thread.
 */
const char *niclab_last_error(void);

/**
 * Opens the NIC behind the character device `path`, or the first one when `path` is null.
 *
 * # Safety
 *
 * `path` must be null or a string, `device` null or valid for a store.
 */
int niclab_open(const char *path, niclab_device **device);

/**
 * Closes a NIC; its ports stay open. Null is ignored.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, and is not to be used again.
 */
void niclab_close(niclab_device *device);

/**
 * Tells what the NIC says of itself.
 *
 * # Safety
 *
 * `device` must be null or from niclab_open, `info` null or valid for a store.
 */
int niclab_get_info(const niclab_device *device, niclab_info *info);

/**
 * Opens port `number`, or any free one for NICLAB_ANY_PORT, with a receive queue of `slices` (a power of two from 8
 * on; 0 for 256).
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
 * Closes a port: messages that have not left are discarded. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open, and is not to be used again.
 */
void niclab_ultra_close(niclab_ultra_port *port);

/**
 * The port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open; null has the number NICLAB_ANY_PORT.
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
 * Lets a port of another node send to this one, and sets `credits` slices aside for it.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_authorize(niclab_ultra_port *port, uint32_t node, uint32_t node_port, uint32_t credits);

/**
 * Takes that right back.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_revoke(niclab_ultra_port *port, uint32_t node, uint32_t node_port);

/**
 * Sends `words` (0 to 8) words of payload and a tag of two words, with NICLAB_NOTIFY, NICLAB_INTERRUPT and
 * NICLAB_ACKNOWLEDGE as flags. Waits for room up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
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
 * Receives a message; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open, `message` null or valid for a store.
 */
int niclab_ultra_receive(niclab_ultra_port *port, niclab_message *message, int64_t timeout_us);

/**
 * Waits up to `timeout_us` until all messages sent so far left; the last one must carry NICLAB_NOTIFY or
 * NICLAB_ACKNOWLEDGE.
 *
 * # Safety
 *
 * `port` must be null or from niclab_ultra_open.
 */
int niclab_ultra_flush(niclab_ultra_port *port, int64_t timeout_us);

/**
 * Opens an active port, or any free one for NICLAB_ANY_PORT, with `buffers` receive buffers, each for one message of
 * `buffer_bytes` at most. `policy` is a wait policy.
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
 * Closes the port: messages for it are dropped. Null is allowed.
 *
 * # Safety
 *
 * `port` must be null or from gamma_open, and is not used afterwards.
 */
void gamma_close(gamma_port *port);

/**
 * Sends a message to an active port of another node, out of the program's memory, and returns once it has left. Waits
 * up to `timeout_us` while the window does not let it through.
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
 * Calls the handler for the messages that are there, or waits for the first up to `timeout_us`; 0 does not wait. Says
 * how many there were where `handled` is not null. An error tells what was lost: nothing stops for it.
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
 * Enables the library for a program: opens `channels` logical channels, from `first_port` on or any for GRIM_ANY_PORT.
 * The list of all handlers is kept by the channel of port `keeper_port` on `keeper_node`, the same for all programs of
 * the cluster.
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
 * Closes the channels: what has not left is taken back (grim_flush). Null is ignored.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, and is not to be used again.
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
 * Registers a handler, at any time. With GRIM_ANY_NUMBER it has a number once grim_synch_handlers() has returned.
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
 * Makes the handlers that are registered part of the cluster's list, and waits until they are, up to `timeout_us`. The
 * program that keeps the list must poll. Names that could not be merged are in niclab_last_error().
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_synch_handlers(grim *handle,
                        int64_t timeout_us);

/**
 * The number of a handler. Waits up to `timeout_us` until it is part of the list; 0 does not wait, and fails with
 * NICLAB_ERROR_AGAIN.
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
 * Sends four integers for a handler of the endpoint at `node` and `port`, through the channel of this number, from 0.
 * Waits for room up to `timeout_us`, and runs handlers meanwhile.
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
 * As grim_send_short(), with a payload of up to GRIM_MAX_BULK_BYTES. It may be used anew once this returns.
 *
 * # Safety
 *
 * As there; `payload` must be null or valid for reads of `bytes`.
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
 * Copies `bytes`, of which there may be any number, to `offset` of a region that the program at `node` and `port` has
 * exposed by this name. It is not told: a message behind them, which comes behind them, may do that. Waits as
 * grim_send_short() does.
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
 * Runs the handlers of messages that are there, or waits for the first up to `timeout_us`; 0 does not wait. Says how
 * many there were where `handled` is not null. An error names what went wrong since the last call: nothing stops for
 * it.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable, `handled` null or valid for a store.
 */
int grim_poll(grim *handle,
              uint32_t *handled,
              int64_t timeout_us);

/**
 * Waits up to `timeout_us` until all that was sent has left, and runs handlers meanwhile.
 *
 * # Safety
 *
 * `handle` must be null or from grim_enable.
 */
int grim_flush(grim *handle, int64_t timeout_us);

/**
 * Allocates and registers at least `bytes` of memory for a channel, zeros all of them, and lets memory messages write
 * into it. `name` is what those who write give. niclab_region_memory() says where it is, and niclab_region_release()
 * ends it.
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
 * As grim_send_short(), from a handler: what finds no room waits, and there is a bound for that
 * (NICLAB_ERROR_REFUSED).
 *
 * # Safety
 *
 * `send_queue` must be null or what the handler was given, `arguments` null or valid for four integers.
 */
int grim_queue_short(grim_queue *send_queue,
                     uint32_t channel,
                     uint32_t node,
                     uint32_t port,
                     uint32_t handler,
                     const uint32_t *arguments);

/**
 * As grim_send_bulk(), from a handler.
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
 * What a result of an event means, in English; never null. Valid for ever.
 */
const char *niclab_inic_result_text(uint32_t result);

/**
 * Opens port `number`, or any free one for NICLAB_ANY_PORT, with a queue of `events` (a power of two from 8 on; 0 for
 * 256).
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
 * Closes a port, as soon as its regions are released too. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, and is not to be used again.
 */
void niclab_inic_close(niclab_inic_port *port);

/**
 * The port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open; null has the number NICLAB_ANY_PORT.
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
 * Allocates and registers at least `bytes` of memory, zeros all of them. niclab_region_memory() says where they are.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `region` null or valid for a store.
 */
int niclab_inic_allocate(const niclab_inic_port *port,
                         uint64_t bytes,
                         niclab_region **region);

/**
 * Registers memory of the program: it begins at a multiple of 8 and has a multiple of 8 bytes. It must not be freed
 * before niclab_region_release(), nor after it if the device is gone meanwhile (NICLAB_ERROR_GONE).
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `region` null or valid for a store, `memory` null or valid for reads
 * and writes of `bytes` as long as said above. What the NIC may write, the program reads after its event only.
 */
int niclab_inic_register(const niclab_inic_port *port,
                         void *memory,
                         uint64_t bytes,
                         niclab_region **region);

/**
 * Sends `bytes` of a region from `offset` on to `node`: a multiple of 4, and not 0. With `tells`, NICLAB_INIC_SENT
 * tells when the memory may be used again. Waits for room up to `timeout_us`; 0 does not wait, and fails with
 * NICLAB_ERROR_AGAIN.
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
 * Posts `bytes` of a region from `offset` on, a multiple of 4 and not 0, for one message from whichever node. With
 * `interrupts`, the NIC interrupts once the event of the message is there. Waits for room as niclab_inic_send does.
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
 * Changes when the NIC interrupts, beside receives that ask for it: for so many bytes that came; `at_end` of a message
 * for those that are pooled; for each message of so many bytes or more; of `node`, or NICLAB_INIC_ANY_NODE. 0 turns a
 * rule off.
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
 * Makes a group of `count` nodes, this one among them, in the same order at every member. Without nodes drops it.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `nodes` valid for reads of `count` numbers, or null where there are
 * none.
 */
int niclab_inic_group(const niclab_inic_port *port,
                      uint32_t group,
                      const uint32_t *nodes,
                      uint32_t count);

/**
 * Waits for all members of a group: NICLAB_INIC_DONE tells that all have come. With `interrupts`, the NIC interrupts
 * then. Waits for room as niclab_inic_send does.
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
 * Sends `bytes` of a region from `offset` on to all other members of a group, each of which must have posted room:
 * NICLAB_INIC_DONE tells that all have it. Otherwise as niclab_inic_barrier.
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
 * Combines `bytes` of values of a region from `offset` on with those of all other members, by NICLAB_INIC_SUM and the
 * others: NICLAB_INIC_DONE tells that the result stands in their place. Otherwise as niclab_inic_barrier.
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
 * Receives an event; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_inic_open, `event` null or valid for a store.
 */
int niclab_inic_next_event(niclab_inic_port *port, niclab_inic_event *event, int64_t timeout_us);

/**
 * What a result of an event means, in English; never null. Valid for ever.
 */
const char *niclab_match_result_text(uint32_t result);

/**
 * Opens port `number`, or any free one for NICLAB_ANY_PORT, with a queue of `events` (a power of two from 8 on; 0 for
 * 256).
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
 * Closes a port, as soon as its regions are released too. Null is ignored.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, and is not to be used again.
 */
void niclab_match_close(niclab_match_port *port);

/**
 * The port's number.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open; null has the number NICLAB_ANY_PORT.
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
 * Allocates and registers at least `bytes` of memory, zeros all of them. niclab_region_memory() says where they are.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `region` null or valid for a store.
 */
int niclab_match_allocate(const niclab_match_port *port,
                          uint64_t bytes,
                          niclab_region **region);

/**
 * Registers memory of the program: it begins at a multiple of 8 and has a multiple of 8 bytes. It must not be freed
 * before niclab_region_release(), nor after it if the device is gone meanwhile (NICLAB_ERROR_GONE).
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `region` null or valid for a store, `memory` null or valid for reads
 * and writes of `bytes` as long as said above. What the NIC may write, the program reads after its event only.
 */
int niclab_match_register(const niclab_match_port *port,
                          void *memory,
                          uint64_t bytes,
                          niclab_region **region);

/**
 * Appends a match entry; its handle goes to `handle`, unless that is null. Waits for room up to `timeout_us`; 0 does
 * not wait, and fails with NICLAB_ERROR_AGAIN.
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
 * Unlinks an entry: NICLAB_MATCH_UNLINKED answers. Waits for room as niclab_match_append does.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open.
 */
int niclab_match_unlink(niclab_match_port *port, uint32_t entry, int64_t timeout_us);

/**
 * Puts bytes into the first entry of a portal that matches. Waits for room as niclab_match_append does.
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
 * Gets bytes from the first entry of a portal that matches: NICLAB_MATCH_REPLY tells when they are there. Waits for
 * room as niclab_match_append does.
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
 * Receives an event; waits for it up to `timeout_us`; 0 does not wait, and fails with NICLAB_ERROR_AGAIN.
 *
 * # Safety
 *
 * `port` must be null or from niclab_match_open, `event` null or valid for a store.
 */
int niclab_match_next_event(niclab_match_port *port, niclab_match_event *event, int64_t timeout_us);

/**
 * Reads a counter; waits until it has `successes`, or another failure, up to `timeout_us`; 0 does not wait. Each
 * result goes where it is wanted, unless that is null.
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
 * Deregisters memory: once this returns, the NIC touches it no more. Its entries are unlinked without events. Null is
 * ignored.
 *
 * # Safety
 *
 * `region` must be null or from this library, and is not to be used again.
 */
void niclab_region_release(niclab_region *region);

/**
 * Where the memory of a region is; null for null.
 *
 * # Safety
 *
 * `region` must be null or from this library.
 */
void *niclab_region_memory(const niclab_region *region);

/**
 * Bytes of a region; 0 for null.
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
