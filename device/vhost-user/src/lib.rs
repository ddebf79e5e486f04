//! The live shell: NIC models behind QEMU over vhost-user, and an in-process front end.
