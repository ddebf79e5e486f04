// SPDX-License-Identifier: GPL-2.0
/*
 * Test of the kernel driver against a working device.
 *
 *   niclab-selftest [/dev/niclabN]         all tests; as root also those that unbind the driver
 *   niclab-selftest death [/dev/niclabN]   waits until the device dies (stop its daemon), then tests the rest
 *   niclab-selftest hold [/dev/niclabN]    with lists: registers memory, posts a receive, reports it, and waits
 *                                          to be killed
 *   niclab-selftest put [/dev/niclabN]     with lists: puts into its own memory
 *   niclab-selftest active [/dev/niclabN]  with descriptor rings, in a cluster of two nodes: active ports
 *   niclab-selftest slow [/dev/niclabN]    like active: takes messages slowly, and waits to be killed
 *   niclab-selftest send [/dev/niclabN]    sends to the program in mode slow
 *
 * No other program may have a port open during the tests. Output is TAP. The exit code is 0 if every test passed, 1 if
 * one failed, 2 if they could not run.
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
