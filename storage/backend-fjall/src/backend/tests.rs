//! The conformance suite on fjall.

use std::sync::Arc;

use tideline_backend::Backend;
use tideline_backend::conformance::{self, Fixture};

use super::*;

struct Place(tempfile::TempDir);

impl Fixture for Place {
    fn open(&self) -> Arc<dyn Backend> {
        Arc::new(FjallBackend::open(self.0.path(), options()).expect("open"))
    }
}

fn options() -> FjallOptions {
    FjallOptions {
        cache_bytes: 4 << 20,
        worker_threads: 1,
        free_bytes_min: 0,
        free_per_mille_min: 0,
        ..FjallOptions::default()
    }
}

#[test]
fn fjall_conforms() {
    conformance::run_all(&|| Box::new(Place(tempfile::tempdir().expect("a folder"))));
}
