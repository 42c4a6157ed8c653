//! P17, the table: one row per reel, with the statistics of the device and the totals of calls.

use ioreel_analyze::{
    events::calls::Call,
    meters::latency::Latency,
    summary::{actor::Totals, device::DeviceMeter},
};

use super::panel::{About, Issue, Needs, Panel, Setup, Spec};
use crate::{
    model::sheet::Sheet,
    model::{
        shape::Shape,
        survey::{Choice, Survey},
    },
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
            totals: Totals::default(),
            of_calls: false,
        }))
    },
};

pub(crate) struct Table {
    survey: Survey,
    manifest: ioreel_traces::Manifest,
    meter: DeviceMeter,
    latency: Latency,
    totals: Totals,
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
            totals: Totals::default(),
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
        let window = Choice { device: None, from_ns: Some(self.survey.from_ns), to_ns: Some(self.survey.to_ns) };
        if window.holds(call.end_ns()) {
            self.totals.calls += 1;
            self.totals.errors += u64::from(call.errno().is_some());
            self.totals.add_bytes(call);
            if let Some(ns) = call.dur_ns {
                self.latency.record(ns);
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let span_ns = self.survey.to_ns - self.survey.from_ns;
        let dev = self.survey.device.as_ref().filter(|_| !self.of_calls);
        let device = dev.map(|d| self.meter.summary(d.dev, &self.manifest, span_ns));
        let calls = (self.of_calls && self.survey.has_calls).then(|| (self.totals, self.latency.summary()));
        Shape::Table(vec![Sheet { survey: self.survey, device, calls }])
    }
}
