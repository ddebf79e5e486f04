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
 * Device and library do not go together: another ABI version or NIC model.
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
 * A NIC.
 */
typedef struct niclab_device niclab_device;

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
 * Opens port `number`, or any free one for NICLAB_ANY_PORT, with a receive queue of `slices` (a power of two from 8 on;
 * 0 for 256).
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
 * `port` must be null or from niclab_ultra_open, `payload` valid for `words` words or `words` zero, `tag` null or valid
 * for two.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NICLAB_H */
