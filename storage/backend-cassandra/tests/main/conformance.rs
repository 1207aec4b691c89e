//! Runs the conformance suite, which every backend must pass, on a real node.

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::conformance::{Fixture, run_all};
use tideline_testkit::cassandra::shared_node;

use crate::keyspace::Keyspace;

/// Runs all rules of the suite, each in the emptied keyspace.
pub(crate) fn conforms(keyspace: &Arc<Keyspace>) {
    run_all(&|| {
        keyspace.empty();
        Box::new(Emptied(Arc::clone(keyspace)))
    });
}

/// Keyspace that was emptied for one rule.
struct Emptied(Arc<Keyspace>);

impl Fixture for Emptied {
    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(self.0.open())
    }
}

#[test]
fn cassandra_conforms() {
    let Some(contact) = shared_node() else {
        return;
    };
    conforms(&Arc::new(Keyspace::new(contact)));
}
