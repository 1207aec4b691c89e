//! The conformance suite for all backends.

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::conformance::{Fixture, run_all};

use crate::place::Place;

impl Fixture for Place {
    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(Place::open(self).expect("open"))
    }
}

#[test]
fn fjall_conforms() {
    run_all(&|| Box::new(Place::new()));
}
