//! The components, one file each. A component is one function of a protocol (section 4); an assembly connects them.
//!
//! | block | components |
//! |---|---|
//! | A, forming packets | [`xmit`], [`rate_control`] |
//! | B, flow control | [`genp`], [`genp_unreliable`], [`build_acks`], [`timer`], [`dup_find`], [`order_pkts`] |
//! | B, flow control (continued) | [`drop_pkt`], [`selective_repeat`], [`mitigate`] |
//! | C, receiving | [`rcv_pkt`], [`bad_pkt_filter`], [`split_packet`] |
//! | none: the card's edges | [`edges`], [`host_receive`] |

pub(super) mod bad_pkt_filter;
pub(super) mod build_acks;
pub(super) mod drop_pkt;
pub(super) mod dup_find;
pub(super) mod edges;
pub(super) mod genp;
pub(super) mod genp_unreliable;
pub(super) mod host_receive;
pub(super) mod mitigate;
pub(super) mod order_pkts;
pub(super) mod rate_control;
pub(super) mod rcv_pkt;
pub(super) mod selective_repeat;
pub(super) mod split_packet;
pub(super) mod timer;
pub(super) mod xmit;
