//! The methods that a wrapper of a model leaves to the model: [`super::adversarial`] and [`super::fault_injector`]
//! change only a model's effects.

/// Methods of [`super::Nic`] that call the same method of `self.nic`.
macro_rules! delegate_nic {
    () => {
        fn memory_named_by(&self, request: &[u8]) -> $crate::nic::HostRanges {
            self.nic.memory_named_by(request)
        }

        fn descriptors_wanted(&self, queue: $crate::nic::DescriptorQueue) -> Option<usize> {
            self.nic.descriptors_wanted(queue)
        }

        fn accepts_store(&self, port: u32) -> bool {
            self.nic.accepts_store(port)
        }

        fn is_open(&self, port: u32) -> bool {
            self.nic.is_open(port)
        }

        fn has_mac_endpoints(&self) -> bool {
            self.nic.has_mac_endpoints()
        }

        fn reload_firmware(
            &mut self,
            now: $crate::time::Time,
            step: $crate::nic::firmware_reload::FirmwareReloadStep<'_>,
            node: &mut $crate::platform::node_bus::NodeBus,
        ) -> Result<(), $crate::nic::firmware_reload::FirmwareReloadError> {
            self.nic.reload_firmware(now, step, node)
        }

        fn progress(&self) -> $crate::nic::firmware_reload::Progress {
            self.nic.progress()
        }

        fn epoch(&self) -> u16 {
            self.nic.epoch()
        }

        fn work_done(&self) -> u64 {
            self.nic.work_done()
        }
    };
}

/// Methods of [`super::Observed`] that call the same method of `self.nic`.
macro_rules! delegate_observed {
    () => {
        fn delivered(&self, port: u32) -> u64 {
            self.nic.delivered(port)
        }

        fn unordered(&self) -> u64 {
            self.nic.unordered()
        }

        fn unreported(&self) -> u64 {
            self.nic.unreported()
        }

        fn begin_part(&mut self, at: $crate::time::Time) {
            self.nic.begin_part(at);
        }

        fn ledger(&self) -> &$crate::platform::ledger::Ledger {
            self.nic.ledger()
        }

        fn ledger_mut(&mut self) -> &mut $crate::platform::ledger::Ledger {
            self.nic.ledger_mut()
        }

        fn peripherals(&self) -> alloc::vec::Vec<(&'static str, &$crate::platform::ledger::Ledger)> {
            self.nic.peripherals()
        }

        fn peripheral_ledgers_mut(&mut self) -> alloc::vec::Vec<&mut $crate::platform::ledger::Ledger> {
            self.nic.peripheral_ledgers_mut()
        }

        fn statistics(&self, shell: &$crate::nic::ShellCounts) -> $crate::nic::Statistics {
            self.nic.statistics(shell)
        }

        fn counters(&self) -> alloc::vec::Vec<(&'static str, u64)> {
            self.nic.counters()
        }
    };
}

pub(super) use {delegate_nic, delegate_observed};
