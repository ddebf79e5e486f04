//! Frames of every length and tag that a guest's program may send through `eth0`, and the link's parameters in the
//! guest.

use niclab_harness::{Niclab, compile};

/// `frames send MAC TAGS LENGTH` sends a frame of this length with `TAGS` VLAN tags; `frames receive` prints the length
/// of each. The kernel removes the tag, 4 bytes, from a received frame.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPERIMENTAL 0x88b6

int main(int count, char **words)
{
    struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(3) };
    int s = socket(AF_PACKET, SOCK_RAW, htons(3)), i, tag;

    address.sll_ifindex = if_nametoindex("eth0");
    if (s < 0 || bind(s, (void *)&address, sizeof(address)))
        return 1;
    if (count == 2) {
        setlinebuf(stdout);
        puts("listening");
        for (;;) {
            unsigned char frame[4096];
            ssize_t length = recv(s, frame, sizeof(frame), 0);

            for (i = 12; i < 24 && length > 24; i += 4)
                if (frame[i] == EXPERIMENTAL >> 8 && frame[i + 1] == (EXPERIMENTAL & 0xff))
                    printf("received %zd\n", length);
        }
    }
    {
        unsigned char frame[4096] = { 0 }, *next = frame + 12;

        sscanf(words[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", frame, frame + 1, frame + 2, frame + 3, frame + 4, frame + 5);
        frame[6] = 2;
        for (tag = atoi(words[3]); tag > 0; tag--, next += 4) {
            next[0] = 0x81;
            next[3] = 100;
        }
        next[0] = EXPERIMENTAL >> 8;
        next[1] = EXPERIMENTAL & 0xff;
        return write(s, frame, atoi(words[4])) < 0;
    }
}
"#;

#[test]
fn full_frames_with_vlan_tags_are_carried() {
    let niclab = Niclab::new();
    compile(&niclab, "frames", PROGRAM);
    niclab.run(["up"]).success();
    let seen = niclab.run(["inspect", "--json"]).success().json();
    let mac = seen["nodes"][1]["mac"].as_str().expect("an address").to_owned();
    let mut receiver = niclab.start(["exec", "node1", "--", "./frames", "receive"]);
    receiver.wait_for_line("listening");
    // The tag does not count toward the MTU of 1,500 bytes. Linux sends no longer frame.
    for (tags, length) in [("0", "1514"), ("1", "1518")] {
        niclab.run(["exec", "node0", "--", "./frames", "send", &mac, tags, length]).success();
        let received = receiver.wait_for_line("received");
        assert_eq!(received.trim_end(), "received 1514", "{tags} tags");
    }
    niclab.run(["down"]).success();
}

#[test]
fn the_guest_knows_the_mtu_the_speed_and_the_duplex_of_its_link() {
    let niclab = Niclab::new();
    let script = "cat /sys/class/net/eth0/speed /sys/class/net/eth0/duplex
        ! ip link set eth0 mtu 1501 && ip link set eth0 mtu 1500 && ip link set eth0 mtu 576";
    let outcome = niclab.run(["run", "--nodes", "1", "--", "sh", "-c", script]).success();
    assert!(outcome.stdout.contains("12800") && outcome.stdout.contains("full"), "{outcome}");
}
