//! Runs the conformance suite, which every backend must pass, on a real node.

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::conformance::{Fixture, run_selected};
use tideline_testkit::cassandra::shared_node;

use crate::keyspace::Keyspace;

/// Runs the rules of the suite for whose names `is_selected` returns true, each in the emptied keyspace. Returns their
/// number.
pub(crate) fn conforms(keyspace: &Arc<Keyspace>, is_selected: &dyn Fn(&str) -> bool) -> usize {
    let create = || -> Box<dyn Fixture> {
        keyspace.empty();
        Box::new(Emptied(Arc::clone(keyspace)))
    };
    run_selected(&create, is_selected)
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
    conforms(&Arc::new(Keyspace::new(contact)), &|_| true);
}
