// SPDX-License-Identifier: GPL-2.0
/*
 * Test of the kernel driver against a device that works.
 *
 *   niclab-selftest [/dev/niclabN]         all tests; as root also those that unbind the driver
 *   niclab-selftest death [/dev/niclabN]   waits until the device dies (stop its daemon), then tests what is left
 *   niclab-selftest hold [/dev/niclabN]    with lists: registers memory, posts a receive, says so, and waits to be killed
 *   niclab-selftest put [/dev/niclabN]     with lists: puts into memory of its own
 *   niclab-selftest active [/dev/niclabN]  with descriptor rings, in a cluster of two nodes: active ports
 *   niclab-selftest slow [/dev/niclabN]    beside these: takes messages slowly, and waits to be killed
 *   niclab-selftest send [/dev/niclabN]    sends to that
 *
 * No port may be open meanwhile. Output is TAP; the exit code is 0 when every test passed, 1 when one failed, 2 when
 * they could not run.
 */
#include <stdio.h>
#include <string.h>

#include "selftest.h"

int main(int count, char **arguments)
{
	const char *mode = count > 1 && arguments[1][0] != '/' ? arguments[1] : "";
	bool death = !strcmp(mode, "death"), hold = !strcmp(mode, "hold"), put = !strcmp(mode, "put");
	bool active = !strcmp(mode, "active"), slow = !strcmp(mode, "slow"), sends = !strcmp(mode, "send");
	int path = death || hold || put || active || slow || sends ? 2 : 1;

	if (count > path + 1 || (count > path && arguments[path][0] != '/')) {
		fprintf(stderr, "usage: %s [death | hold | put | active | slow | send] [/dev/niclabN]\n", arguments[0]);
		return 2;
	}
	if (count > path)
		device_path = arguments[path];
	if (death)
		return watch_death();
	if (hold)
		return hold_region();
	if (put)
		return test_of_puts();
	if (active)
		return tests_of_active_ports();
	if (slow)
		return receive_slowly();
	if (sends)
		return send_on_and_on();
	tests_of_ports();
	tests_of_maps();
	tests_of_interrupts();
	tests_of_life();
	tests_of_regions();
	tests_of_firmware();
	return tap_finish();
}
