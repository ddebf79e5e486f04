// SPDX-License-Identifier: GPL-2.0
/*
 * A network interface over descriptor rings: other protocols, such as IP, share rings, buffers, interrupts and link
 * with active ports, under an address of their own.
 *
 * The code that polls the ring copies received frames out of it at once. Frames to send are copied into memory that the
 * card reaches. The kernel's network code runs in this interface's own work item, and not inside a lock or a system
 * call of active ports.
 *
 * The card stores a frame before the driver can read its protocol. So the driver limits this interface's share of the
 * buffers afterwards: if more of its frames are in the ring than its share, the driver drops the oldest. From the loss
 * the senders of other protocols learn to send less.
 *
 * If the card does not interrupt because programs poll, the interface polls as well. It takes its own frames, and
 * leaves frames of active ports to the programs unless no program polls.
 */
#include <linux/delay.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "niclab_ring.h"

/* Maximum number of the kernel's frames that wait for a descriptor. */
#define NICLAB_NET_QUEUE 64U

/*
 * Polling without interrupts: how long the interface polls continuously after a frame, the pause between two such
 * polls, the slow polling interval, and how long after a frame the interface polls every jiffy.
 */
#define NICLAB_NET_BUSY_JIFFIES 3
#define NICLAB_NET_PAUSE_US 30U
#define NICLAB_NET_LAZY_JIFFIES (HZ / 50)
#define NICLAB_NET_AWAKE_JIFFIES HZ

/* How long a frame of an active port may wait before the driver assumes that no program polls the ring. */
#define NICLAB_NET_TIMEOUT_JIFFIES 2

/**
 * struct niclab_net - the interface.
 * @netdev: the kernel's network device.
 * @rings: the rings.
 * @outbound: frames that the kernel sends.
 * @inbound: copies of received frames.
 * @work: sends and delivers both.
 * @is_up: the interface is up. Under &niclab_rings.lock, like all fields after it.
 * @last: time of its last received or sent frame, in jiffies.
 * @stood_at: the descriptor of the oldest frame in the ring at the last poll.
 * @stood_since: when the ring reached that descriptor, in jiffies.
 * @measured_at: the descriptor of the oldest frame when the ring was last measured.
 * @measured_in: time of that measurement, in jiffies.
 * @surplus: frames counted in that measurement that exceed its share.
 */
struct niclab_net {
	struct net_device *netdev;
	struct niclab_rings *rings;
	struct sk_buff_head outbound;
	struct sk_buff_head inbound;
	struct delayed_work work;
	bool is_up;
	unsigned long last;
	u64 stood_at;
	unsigned long stood_since;
	u64 measured_at;
	unsigned long measured_in;
	u32 surplus;
};

/* The longest frame. It may use the bytes of the check sequence, which the card adds to frames of active ports only. */
static u32 niclab_net_frame_bytes(const struct niclab_rings *rings)
{
	return rings->terms.frame_bytes + NICLAB_CHECK_BYTES;
}

static void niclab_net_kick(struct niclab_net *net)
{
	mod_delayed_work(system_unbound_wq, &net->work, 0);
}

/**
 * niclab_net_measure - counts the interface's frames in the ring, before the driver takes some out.
 * @rings: the rings, locked.
 */
void niclab_net_measure(struct niclab_rings *rings)
{
	struct niclab_net *net = rings->net;
	u32 most = rings->terms.other_buffers;
	u32 others;

	if (!net || !net->is_up)
		return;
	/* Do not count an unchanged ring again in the same jiffy. */
	if (net->measured_at == rings->receive.taken && net->measured_in == jiffies)
		return;
	net->measured_at = rings->receive.taken;
	net->measured_in = jiffies;
	others = niclab_active_count_others(rings);
	net->surplus = others > most ? others - most : 0;
	rings->raised[NICLAB_RAISED_OTHERS_MOST] = max_t(u64, rings->raised[NICLAB_RAISED_OTHERS_MOST], others);
}

/**
 * niclab_net_take - receives a frame of a protocol other than that of active ports.
 * @rings: the rings, locked.
 * @frame: the frame, in the ring.
 * @bytes: its length, at least that of an Ethernet header.
 */
void niclab_net_take(struct niclab_rings *rings, const void *frame, u32 bytes)
{
	struct niclab_net *net = rings->net;
	struct sk_buff *skb = NULL;
	bool is_surplus;

	if (!net || !net->is_up)
		return;
	net->last = jiffies;
	is_surplus = net->surplus || skb_queue_len(&net->inbound) >= rings->terms.other_buffers;
	if (net->surplus)
		net->surplus--;
	if (bytes > niclab_net_frame_bytes(rings)) {
		DEV_STATS_INC(net->netdev, rx_errors);
		DEV_STATS_INC(net->netdev, rx_length_errors);
		return;
	}
	if (is_surplus)
		rings->raised[NICLAB_RAISED_OTHERS_DROPPED]++;
	else
		skb = netdev_alloc_skb_ip_align(net->netdev, bytes);
	if (!skb) {
		DEV_STATS_INC(net->netdev, rx_dropped);
		return;
	}
	skb_put_data(skb, frame, bytes);
	skb->protocol = eth_type_trans(skb, net->netdev);
	DEV_STATS_INC(net->netdev, rx_packets);
	DEV_STATS_ADD(net->netdev, rx_bytes, bytes);
	skb_queue_tail(&net->inbound, skb);
	niclab_net_kick(net);
}

/**
 * niclab_net_on_sent - a frame of the interface has left, or the card refused it.
 * @rings: the rings, locked.
 * @status: its status from the card.
 */
void niclab_net_on_sent(struct niclab_rings *rings, u32 status)
{
	struct niclab_net *net = rings->net;

	rings->others_taken++;
	if (net && status & NICLAB_RING_ERROR)
		DEV_STATS_INC(net->netdev, tx_errors);
}

static void *niclab_net_buffer(const struct niclab_rings *rings, u32 number)
{
	u32 place = number % NICLAB_OTHER_DESCRIPTORS;

	return rings->other_pages[place / 2] + place % 2 * NICLAB_FRAME_BYTES;
}

/* Gives frames to the card while it has free descriptors. */
static void niclab_net_send(struct niclab_net *net)
{
	struct niclab_rings *rings = net->rings;
	struct niclab_piece piece;
	struct sk_buff *skb;
	void *buffer;

	while (niclab_ring_other_room(rings) && niclab_ring_free_count(&rings->send) &&
	       (skb = skb_dequeue(&net->outbound))) {
		buffer = niclab_net_buffer(rings, rings->others_given++);
		piece = (struct niclab_piece){ .address = virt_to_phys(buffer), .bytes = skb->len };
		/* Its length was checked in ndo_start_xmit. */
		WARN_ON_ONCE(skb_copy_bits(skb, 0, buffer, skb->len));
		niclab_ring_post_other(rings, &piece);
		net->last = jiffies;
		DEV_STATS_INC(net->netdev, tx_packets);
		DEV_STATS_ADD(net->netdev, tx_bytes, skb->len);
		dev_consume_skb_any(skb);
	}
	niclab_ring_demand(rings);
	if (skb_queue_len(&net->outbound) < NICLAB_NET_QUEUE && netif_queue_stopped(net->netdev))
		netif_wake_queue(net->netdev);
}

/* Polls the ring, with the method for cards that interrupt or the method for cards that do not. */
static void niclab_net_poll(struct niclab_net *net)
{
	struct niclab_rings *rings = net->rings;
	u32 status;

	if (rings->terms.interrupt_frames) {
		niclab_active_serve(rings, NULL);
		return;
	}
	niclab_active_serve_others(rings);
	if (!niclab_ring_poll(rings, &status))
		return;
	if (net->stood_at != rings->receive.taken) {
		net->stood_at = rings->receive.taken;
		net->stood_since = jiffies;
	} else if (time_after(jiffies, net->stood_since + NICLAB_NET_TIMEOUT_JIFFIES)) {
		niclab_active_serve(rings, NULL);
	}
}

/* Passes received frames to the kernel's network code, without locks. */
static void niclab_net_deliver(struct niclab_net *net)
{
	struct sk_buff *skb;

	local_bh_disable();
	while ((skb = skb_dequeue(&net->inbound)))
		netif_receive_skb(skb);
	local_bh_enable();
}

/* Time until the next poll, in jiffies; negative: no poll until an event. */
static long niclab_net_pause(const struct niclab_net *net)
{
	bool is_polling = !net->rings->terms.interrupt_frames;

	if (!skb_queue_empty(&net->outbound))
		return 0;
	if (!is_polling)
		return -1;
	if (time_before(jiffies, net->last + NICLAB_NET_BUSY_JIFFIES))
		return 0;
	return time_before(jiffies, net->last + NICLAB_NET_AWAKE_JIFFIES) ? 1 : NICLAB_NET_LAZY_JIFFIES;
}

static void niclab_net_work(struct work_struct *work)
{
	struct niclab_net *net = container_of(to_delayed_work(work), struct niclab_net, work);
	struct niclab_rings *rings = net->rings;
	long pause;

	mutex_lock(&rings->lock);
	if (niclab_is_dead(rings->nic))
		netif_carrier_off(net->netdev);
	if (rings->is_stopped || !net->is_up || niclab_is_dead(rings->nic)) {
		mutex_unlock(&rings->lock);
		skb_queue_purge(&net->outbound);
		skb_queue_purge(&net->inbound);
		return;
	}
	niclab_net_poll(net);
	niclab_net_send(net);
	pause = niclab_net_pause(net);
	mutex_unlock(&rings->lock);
	niclab_net_deliver(net);
	if (!pause)
		usleep_range(NICLAB_NET_PAUSE_US, 2 * NICLAB_NET_PAUSE_US);
	/* If the work is already queued for an earlier time, it keeps that time. */
	if (pause >= 0)
		queue_delayed_work(system_unbound_wq, &net->work, pause);
}

static netdev_tx_t niclab_net_start_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	struct niclab_net *net = netdev_priv(netdev);

	if (skb->len < ETH_HLEN || skb->len > niclab_net_frame_bytes(net->rings)) {
		DEV_STATS_INC(netdev, tx_dropped);
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	skb_tx_timestamp(skb);
	skb_queue_tail(&net->outbound, skb);
	if (skb_queue_len(&net->outbound) >= NICLAB_NET_QUEUE)
		netif_stop_queue(netdev);
	/* After this call the work item sees both the frame and the stopped queue. */
	niclab_net_kick(net);
	return NETDEV_TX_OK;
}

static int niclab_net_open(struct net_device *netdev)
{
	struct niclab_net *net = netdev_priv(netdev);

	mutex_lock(&net->rings->lock);
	net->is_up = true;
	net->last = jiffies - NICLAB_NET_AWAKE_JIFFIES;
	net->surplus = 0;
	mutex_unlock(&net->rings->lock);
	netif_start_queue(netdev);
	niclab_net_kick(net);
	return 0;
}

static int niclab_net_close(struct net_device *netdev)
{
	struct niclab_net *net = netdev_priv(netdev);

	netif_stop_queue(netdev);
	mutex_lock(&net->rings->lock);
	net->is_up = false;
	mutex_unlock(&net->rings->lock);
	cancel_delayed_work_sync(&net->work);
	skb_queue_purge(&net->outbound);
	skb_queue_purge(&net->inbound);
	return 0;
}

/*
 * The address is fixed: the card sends frames under its own address only. There is no receive filter, because the
 * interface wants all broadcasts, and the card receives them.
 */
static const struct net_device_ops niclab_net_operations = {
	.ndo_open = niclab_net_open,
	.ndo_stop = niclab_net_close,
	.ndo_start_xmit = niclab_net_start_xmit,
	.ndo_validate_addr = eth_validate_addr,
};

static const struct ethtool_ops niclab_net_ethtool_operations = {
	.get_link = ethtool_op_get_link,
};

/**
 * niclab_net_carrier - sets the carrier state from the card's link state.
 * @nic: the NIC, whose &niclab.event_lock is held.
 */
void niclab_net_carrier(struct niclab *nic)
{
	struct niclab_rings *rings = nic->rings;

	lockdep_assert_held(&nic->event_lock);
	if (!rings || !rings->net)
		return;
	if (nic->is_cut || READ_ONCE(rings->is_stopped))
		netif_carrier_off(rings->net->netdev);
	else
		netif_carrier_on(rings->net->netdev);
}

/* Sets the interface, or none. Returns the previous one. */
static struct niclab_net *niclab_net_set(struct niclab_rings *rings, struct niclab_net *net)
{
	struct niclab_net *before;

	mutex_lock(&rings->lock);
	spin_lock_irq(&rings->nic->event_lock);
	before = rings->net;
	rings->net = net;
	niclab_net_carrier(rings->nic);
	spin_unlock_irq(&rings->nic->event_lock);
	mutex_unlock(&rings->lock);
	return before;
}

static int niclab_net_register(struct niclab *nic, u32 most)
{
	struct net_device *netdev = alloc_etherdev(sizeof(struct niclab_net));
	u8 address[ETH_ALEN];
	struct niclab_net *net;
	int err, i;

	if (!netdev)
		return -ENOMEM;
	for (i = 0; i < ETH_ALEN; i++)
		address[i] = nic->rings->terms.station >> 8 * i;
	eth_hw_addr_set(netdev, address);
	strscpy(netdev->name, "niclab%d", sizeof(netdev->name));
	SET_NETDEV_DEV(netdev, &nic->vdev->dev);
	netdev->netdev_ops = &niclab_net_operations;
	netdev->ethtool_ops = &niclab_net_ethtool_operations;
	netdev->mtu = most;
	netdev->max_mtu = most;
	net = netdev_priv(netdev);
	net->netdev = netdev;
	net->rings = nic->rings;
	skb_queue_head_init(&net->outbound);
	skb_queue_head_init(&net->inbound);
	INIT_DELAYED_WORK(&net->work, niclab_net_work);
	niclab_net_set(nic->rings, net);
	err = register_netdev(netdev);
	if (!err)
		return 0;
	niclab_net_set(nic->rings, NULL);
	free_netdev(netdev);
	return err;
}

/**
 * niclab_net_start - registers the interface, if the card has rings and buffers for it.
 * @nic: the NIC, not locked.
 *
 * Return: 0 or an error.
 */
int niclab_net_start(struct niclab *nic)
{
	u32 most;

	if (!nic->rings)
		return 0;
	most = niclab_net_frame_bytes(nic->rings) - ETH_HLEN;
	if (!nic->rings->terms.other_buffers || most < ETH_MIN_MTU) {
		dev_info(&nic->dev, "no network interface: active ports leave it %u buffers of %u bytes, too few or too short\n",
			 nic->rings->terms.other_buffers, most);
		return 0;
	}
	return niclab_net_register(nic, most);
}

/**
 * niclab_net_stop - unregisters the interface. Its frames in the rings stay there and belong to the rings.
 * @nic: the NIC, not locked.
 */
void niclab_net_stop(struct niclab *nic)
{
	struct niclab_net *net;

	if (!nic->rings)
		return;
	net = niclab_net_set(nic->rings, NULL);
	if (!net)
		return;
	unregister_netdev(net->netdev);
	free_netdev(net->netdev);
}

/**
 * niclab_net_quit - the card no longer processes the rings.
 * @rings: the rings, locked and stopped.
 */
void niclab_net_quit(struct niclab_rings *rings)
{
	spin_lock_irq(&rings->nic->event_lock);
	niclab_net_carrier(rings->nic);
	spin_unlock_irq(&rings->nic->event_lock);
}
