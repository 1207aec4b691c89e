//! Runs the conformance suite, which every backend must pass, with the embedded backend.

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::conformance::{Fixture, run_all};

use crate::test_folder::TestFolder;

impl Fixture for TestFolder {
    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(TestFolder::open(self).expect("open"))
    }
}

#[test]
fn fjall_conforms() {
    run_all(&|| Box::new(TestFolder::new()));
}
