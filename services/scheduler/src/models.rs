//! Registry of the table models that the scheduler maintains.

use std::fmt;
use std::sync::Arc;

use tideline_engine::Engine;
use tideline_engine::model::TableModel;

use crate::maintenance::Maintenance;
use crate::rows::Rows;
use crate::series::{Series, SeriesWork};

/// Table models with their maintenance. Series is always included, because the default table is a series table.
pub struct Models {
    series: Arc<Series>,
    /// Maintenance of wide tables; `None` if it is not registered.
    rows: Option<Arc<Rows>>,
    all: Vec<Arc<dyn Maintenance>>,
}

impl Models {
    /// Creates a registry that holds only the model of series tables.
    pub fn new(series: Arc<dyn SeriesWork>) -> Self {
        let series = Arc::new(Series::new(series));
        Self {
            all: vec![Arc::clone(&series) as _],
            rows: None,
            series,
        }
    }

    /// Creates a registry with the models of a database.
    pub fn of_engine(engine: &Arc<Engine>) -> Self {
        let rows = Arc::new(Rows::new(Arc::clone(engine)));
        Self {
            rows: Some(Arc::clone(&rows)),
            ..Self::new(Arc::clone(engine) as _).with(rows)
        }
    }

    /// Registers another model.
    ///
    /// # Panics
    ///
    /// Panics if the model is registered already.
    #[must_use]
    pub fn with(mut self, maintenance: Arc<dyn Maintenance>) -> Self {
        let model = maintenance.model();
        assert!(self.of(model).is_none(), "the model {model} is registered twice");
        self.all.push(maintenance);
        self
    }

    /// Returns the maintenance of all models.
    pub(crate) fn all(&self) -> &[Arc<dyn Maintenance>] {
        &self.all
    }

    /// Returns the maintenance of a model; `None` if it is not registered.
    pub(crate) fn of(&self, model: TableModel) -> Option<&dyn Maintenance> {
        let found = self.all.iter().find(|maintenance| maintenance.model() == model);
        found.map(AsRef::as_ref)
    }

    /// Returns the maintenance of series tables.
    pub(crate) fn series(&self) -> &Arc<Series> {
        &self.series
    }

    /// Returns the maintenance of wide tables; `None` if it is not registered.
    pub(crate) fn rows(&self) -> Option<&Arc<Rows>> {
        self.rows.as_ref()
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models = self.all.iter().map(|maintenance| maintenance.model());
        f.debug_set().entries(models).finish()
    }
}
