//! Numbers that two packages define separately, because neither may import the other.

#[test]
fn qemu_creates_the_device_that_the_contract_describes() {
    assert_eq!(niclab_spec::pci::VIRTIO_ID, niclab_abi::VIRTIO_ID);
    assert_eq!(niclab_spec::pci::CLUSTER_QUEUES, niclab_abi::QUEUES);
    assert_eq!(niclab_spec::pci::QUEUE_SIZE, niclab_abi::QUEUE_SIZE);
    assert_eq!(niclab_spec::pci::CONFIG_SIZE, niclab_abi::config::CONFIG_BYTES);
}
