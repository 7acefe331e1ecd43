//! A picture of one or more panels side by side, drawn the same into SVG and PNG.

use super::letters::Lettered;
use fusewire_examples::ranks::bytes_text;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// In powers of ten.
    Log,
    /// In powers of two, in KiB and so on.
    Bytes,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stroke {
    /// With a dot at each point.
    Solid,
    /// In dashes.
    Dashed,
}

/// Where a legend stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Corner {
    /// Above, left.
    UpperLeft,
    /// Half way up, left.
    MiddleLeft,
    /// Below, right.
    LowerRight,
}

/// Points, in the order of `x`.
#[derive(Clone, Debug)]
pub struct Curve {
    pub label: String,
    /// Which of the colours.
    pub color: usize,
    pub stroke: Stroke,
    pub points: Vec<(f64, f64)>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    /// What it is, and how it is divided.
    pub x: (String, Scale),
    pub y: (String, Scale),
    pub curves: Vec<Curve>,
    /// Where there are no curves.
    pub legend: Corner,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub panels: Vec<Panel>,
}

/// Told apart also by those who see fewer colours (Okabe and Ito's palette).
const COLORS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(120, 120, 120),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Pixels of a panel, and of the title above all.
const PANEL: (u32, u32) = (860, 600);
const TITLE: u32 = 50;

impl Chart {
    fn size(&self) -> (u32, u32) {
        (PANEL.0 * self.panels.len() as u32, PANEL.1 + TITLE)
    }

    /// The picture as SVG.
    ///
    /// # Errors
    /// What the drawing library says.
    pub fn svg(&self) -> Result<String, String> {
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, self.size()).into_drawing_area())?;
        Ok(text)
    }

    /// The picture as PNG.
    ///
    /// # Errors
    /// What the drawing or the encoding library says.
    pub fn png(&self) -> Result<Vec<u8>, String> {
        let (width, height) = self.size();
        let mut pixels = vec![0; (width * height * 3) as usize];
        let picture = BitMapBackend::with_buffer(&mut pixels, (width, height));
        self.draw(&Lettered(picture).into_drawing_area())?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
        written.map_err(|e| format!("encoding the picture: {e}"))?;
        Ok(file)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), String> {
        let failed = |e: DrawingAreaErrorKind<B::ErrorType>| format!("drawing: {e}");
        area.fill(&WHITE).map_err(failed)?;
        let centre = Pos::new(HPos::Center, VPos::Center);
        let title = ("sans-serif", 24).into_font().color(&BLACK).pos(centre);
        let at = (self.size().0 as i32 / 2, TITLE as i32 / 2);
        area.draw_text(&self.title, &title, at).map_err(failed)?;
        let (_, below) = area.split_vertically(TITLE);
        for (panel, area) in self.panels.iter().zip(below.split_evenly((1, self.panels.len()))) {
            panel.draw(&area).map_err(failed)?;
        }
        area.present().map_err(failed)
    }
}

impl Panel {
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let values = |of: fn(&(f64, f64)) -> f64| self.curves.iter().flat_map(|c| &c.points).map(of);
        let (x, y) = (Axis::of(self.x.1, values(|p| p.0)), Axis::of(self.y.1, values(|p| p.1)));
        let font = ("sans-serif", 20).into_font().color(&BLACK);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, font.clone())
            .margin(15)
            .set_label_area_size(LabelAreaPosition::Left, 90)
            .set_label_area_size(LabelAreaPosition::Bottom, 70)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .x_desc(&self.x.0)
            .y_desc(&self.y.0)
            .label_style(font.clone())
            .axis_desc_style(font.clone())
            .draw()?;
        for curve in &self.curves {
            let color = COLORS[curve.color % COLORS.len()];
            let points = || curve.points.iter().copied();
            let style = color.stroke_width(3);
            let drawn = match curve.stroke {
                Stroke::Solid => {
                    chart.draw_series(points().map(|p| Circle::new(p, 5, color.filled())))?;
                    chart.draw_series(LineSeries::new(points(), style))?
                }
                Stroke::Dashed => chart.draw_series(DashedLineSeries::new(points(), 9, 7, style))?,
            };
            let stroke = curve.stroke;
            drawn.label(&curve.label).legend(move |(x, y)| {
                // A dashed curve's sign is two dashes.
                let middle = if stroke == Stroke::Solid { 15 } else { 12 };
                let parts = [(x, x + middle), (x + 30 - middle, x + 30)];
                let [a, b] = parts.map(|(from, to)| PathElement::new(vec![(from, y), (to, y)], style));
                EmptyElement::at((0, 0)) + a + b
            });
        }
        let corner = match self.legend {
            Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
            Corner::MiddleLeft => SeriesLabelPosition::MiddleLeft,
            Corner::LowerRight => SeriesLabelPosition::LowerRight,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .margin(15)
            .legend_area_size(40)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(font)
            .draw()
    }
}

/// An axis with its marks.
#[derive(Clone, Debug)]
struct Axis {
    scale: Scale,
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Axis {
    /// One that holds all values.
    fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        // Where there is nothing to show, any range will do.
        let (least, most) = if least <= most { (least, most) } else { (1.0, 10.0) };
        let powers = |base: f64, step: i32, from: f64, to: f64| -> Vec<f64> {
            let exponents =
                (from.log(base).round() as i32..=to.log(base).round() as i32).step_by(step as usize);
            exponents.map(|e| base.powi(e)).collect()
        };
        match scale {
            Scale::Log => {
                let (from, to) = (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()));
                // Room for the legend.
                let to = to.max(from * 10.0) * 10.0;
                Axis { scale, range: from..to, marks: powers(10.0, 1, from, to) }
            }
            Scale::Bytes => {
                let (from, to) = (2f64.powf(least.log2().floor()), 2f64.powf(most.log2().ceil()));
                let step = ((to / from).log2() / 6.0).ceil().max(1.0) as i32;
                Axis {
                    scale,
                    range: from / 1.5..to.max(from * 2.0) * 1.5,
                    marks: powers(2.0, step, from, to),
                }
            }
            Scale::Linear => {
                let rough = most / 6.0;
                let unit = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|k| k * unit).into_iter().find(|s| *s >= rough);
                let step = step.unwrap_or(rough);
                let to = (most / step).ceil() * step * 1.1;
                let marks = (0..).map(|k| f64::from(k) * step).take_while(|v| *v <= to).collect();
                Axis { scale, range: 0.0..to, marks }
            }
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = |v: f64| if self.scale == Scale::Linear { v } else { v.max(f64::MIN_POSITIVE).ln() };
        let (from, to) = (place(self.range.start), place(self.range.end));
        limit.0 + ((place(*value) - from) / (to - from) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        match self.scale {
            Scale::Bytes => bytes_text(*value as usize),
            _ => format!("{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_their_values_and_mark_round_ones() {
        let bytes = Axis::of(Scale::Bytes, [1024.0, 1e9].into_iter());
        let labels: Vec<String> = bytes.marks.iter().map(|m| bytes.format_ext(m)).collect();
        assert_eq!(labels, ["1 KiB", "16 KiB", "256 KiB", "4 MiB", "64 MiB", "1 GiB"]);
        let log = Axis::of(Scale::Log, [2.9, 2411.0].into_iter());
        assert_eq!(log.marks, [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0]);
        let linear = Axis::of(Scale::Linear, [0.1, 478.0].into_iter());
        assert_eq!(linear.marks, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        for (axis, least, most) in [(&bytes, 1024.0, 1e9), (&log, 2.9, 2411.0), (&linear, 0.1, 478.0)] {
            let (low, high) = (axis.map(&least, (0, 1000)), axis.map(&most, (0, 1000)));
            assert!(0 <= low && low < high && high <= 1000, "{axis:?}");
        }
        // Nothing to show is no reason to fail.
        assert!(!Axis::of(Scale::Linear, std::iter::empty()).marks.is_empty());
    }
}
