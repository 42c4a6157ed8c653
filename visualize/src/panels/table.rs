//! P17, the table: one row per reel, with the statistics of the device and the totals of calls.

use ioreel_analyze::{
    events::{calls::Call, targets::Moved},
    meters::latency::Latency,
    summary::device::DeviceMeter,
};

use super::panel::{About, Issue, Needs, Panel, Setup, Spec};
use crate::model::{
    shape::Shape,
    sheet::{CallTotals, Sheet},
    survey::Survey,
};

pub(super) const SPEC: Spec = Spec {
    name: "table",
    title: "",
    unit: "",
    about: About::All,
    height: 0,
    make: |s| {
        Ok(Box::new(Table {
            survey: s.survey.clone(),
            manifest: s.reel.manifest.clone(),
            meter: DeviceMeter::default(),
            latency: Latency::default(),
            calls: 0,
            errors: 0,
            moved: Moved::default(),
            of_calls: false,
        }))
    },
};

pub(crate) struct Table {
    survey: Survey,
    manifest: ioreel_traces::Manifest,
    meter: DeviceMeter,
    latency: Latency,
    calls: u64,
    errors: u64,
    moved: Moved,
    of_calls: bool,
}

impl Table {
    /// The same for calls. [`Sheet::join`] joins rows of both kinds.
    pub(crate) fn of_calls(setup: &Setup<'_>) -> crate::Result<Box<dyn Panel>> {
        Ok(Box::new(Self {
            survey: setup.survey.clone(),
            manifest: setup.reel.manifest.clone(),
            meter: DeviceMeter::default(),
            latency: Latency::default(),
            calls: 0,
            errors: 0,
            moved: Moved::default(),
            of_calls: true,
        }))
    }
}

impl Panel for Table {
    fn needs(&self) -> Needs {
        if self.of_calls { Needs::Calls } else { Needs::Requests }
    }

    fn cost(&self) -> u32 {
        5
    }

    fn requests(&mut self, batch: &[Issue]) {
        for i in batch.iter().filter(|i| i.inside) {
            self.meter.push(&i.request);
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        // As `ioreel stats` counts them: those that start in the window.
        if self.survey.choice.holds(call.start_ns) {
            self.calls += 1;
            self.errors += u64::from(call.errno().is_some());
            let (read, written) = call.moved();
            self.moved.add_bytes(read, written);
            if let Some(ns) = call.dur_ns {
                self.latency.record(ns);
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let window = (self.survey.from_ns, self.survey.to_ns);
        let dev = self.survey.device.as_ref().filter(|_| !self.of_calls);
        let device = dev.map(|d| self.meter.summary(d.dev, &self.manifest, window));
        let calls = (self.of_calls && self.survey.has_calls).then(|| CallTotals {
            calls: self.calls,
            errors: self.errors,
            moved: self.moved,
            latency: self.latency.summary(),
        });
        Shape::Table(vec![Sheet { survey: self.survey, device, calls }])
    }
}
