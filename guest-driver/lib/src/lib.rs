//! User library of the niclab NIC: ports, requester pages, receive queues.
