//! Settings of webhooks, as set by the operator.

use std::time::Duration;

use crate::host::HostPattern;
use crate::{AddressFilter, Network};

/// Limits that apply to all webhooks of a server.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Hosts that may receive webhooks. If empty, webhooks are off: no target is valid.
    pub hosts: Vec<HostPattern>,
    /// Networks that are not public and may receive webhooks all the same. Public addresses need no entry.
    pub networks: Vec<Network>,
    /// Maximum time of a request: resolving, connecting, sending, and the head of the response.
    pub timeout: Duration,
    /// Maximum number of bytes of a response body that are read, to use its connection again. The connection of a
    /// longer body is closed.
    pub response_bytes_max: u64,
    /// Certificates in PEM of authorities that are trusted in addition to those of the system. May be empty.
    pub extra_roots_pem: Vec<u8>,
}

impl Default for WebhookSettings {
    /// Returns settings with webhooks off: no hosts, no networks, 10 s per request, 64 KiB of a response.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            networks: Vec::new(),
            timeout: Duration::from_secs(10),
            response_bytes_max: 64 << 10,
            extra_roots_pem: Vec::new(),
        }
    }
}

impl WebhookSettings {
    /// Returns the filter of addresses that the networks define.
    pub fn address_filter(&self) -> AddressFilter {
        AddressFilter::new(self.networks.clone())
    }
}
