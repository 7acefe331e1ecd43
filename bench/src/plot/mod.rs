//! Pictures of benchmark rows: latency and bandwidth against size, and bandwidth against the number of SMs, as SVG and PNG.
//!
//! Rows are JSON lines, as `bench --json` and the peers' programs print them.
//!
//! | rows | picture |
//! |---|---|
//! | `op` is `all_to_all` or `sendrecv` | `OP-N-gpus`: `graph_us` and `eager_us`, and `wire_gb_s`, against `bytes` |
//! | `op` is `ceiling` | in those pictures' bandwidth: a curve, or a level where there is one row of that `name` |
//! | one file has the same `op`, `name`, `output` and `bytes` several times, as after `bench --channels 1,2,4,8` | `OP-sms-N-gpus`: `wire_gb_s` against `sms`, a curve for each |

mod chart;
mod letters;

use chart::{Chart, Corner, Curve, Panel, Scale, Stroke};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A row of a benchmark, as far as pictures need it.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    name: String,
    op: String,
    world: usize,
    #[serde(default)]
    output: String,
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    graph_us: f64,
    #[serde(default)]
    eager_us: f64,
    #[serde(default)]
    wire_gb_s: f64,
    #[serde(default)]
    sms: usize,
    /// One of several of its size.
    #[serde(skip)]
    sweep: bool,
}

impl Row {
    /// Who did it, and into what.
    fn who(&self) -> String {
        if self.output.is_empty() {
            self.name.clone()
        } else {
            format!("{}, {} output", self.name, self.output)
        }
    }
}

/// Draws all pictures that the rows of `files` are enough for, into `folder`. Which files it wrote.
///
/// # Errors
/// A file that cannot be read or written, a row that cannot be understood, or no rows to draw.
pub fn plot(folder: &Path, files: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        rows.extend(read(&text).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    let pictures = pictures(&rows);
    if pictures.is_empty() {
        return Err("there is no row to draw: `op` should be `all_to_all` or `sendrecv`".into());
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut written = Vec::new();
    for (name, chart) in pictures {
        for (extension, bytes) in [("svg", chart.svg()?.into_bytes()), ("png", chart.png()?)] {
            let path = folder.join(format!("{name}.{extension}"));
            std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Lines that begin with `{` are rows; others are what programs print beside them.
fn read(text: &str) -> Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.starts_with('{'));
    let rows = lines.map(|(n, line)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", n + 1)));
    let mut rows: Vec<Row> = rows.collect::<Result<_, String>>()?;
    let key = |r: &Row| (r.op.clone(), r.who(), r.world, r.bytes);
    let mut times: BTreeMap<_, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *times.entry(key(row)).or_default() += 1);
    rows.iter_mut().for_each(|row| row.sweep = times[&key(row)] > 1);
    Ok(rows)
}

fn pictures(rows: &[Row]) -> Vec<(String, Chart)> {
    let worlds: BTreeSet<usize> = rows.iter().map(|r| r.world).collect();
    let mut pictures = Vec::new();
    for world in worlds {
        let of = |op: &str, sweep: bool| -> Vec<&Row> {
            rows.iter().filter(|r| r.op == op && r.world == world && r.sweep == sweep).collect()
        };
        for (op, title) in [("all_to_all", "all-to-all"), ("sendrecv", "sendrecv")] {
            let (sizes, sms) = (of(op, false), of(op, true));
            if !sizes.is_empty() {
                let chart = against_size(format!("{title} on {world} GPUs"), &sizes, &of("ceiling", false));
                pictures.push((format!("{title}-{world}-gpus"), chart));
            }
            if !sms.is_empty() {
                let chart = against_sms(format!("{title} on {world} GPUs"), &sms);
                pictures.push((format!("{title}-sms-{world}-gpus"), chart));
            }
        }
    }
    pictures
}

/// Rows by who they are of, in the order in which these come first.
fn by_name<'r>(rows: &[&'r Row]) -> Vec<(String, Vec<&'r Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|g| g.0 == row.who()) {
            Some(group) => group.1.push(row),
            None => groups.push((row.who(), vec![row])),
        }
    }
    groups
}

fn curve(label: String, color: usize, stroke: Stroke, points: impl Iterator<Item = (f64, f64)>) -> Curve {
    let mut points: Vec<(f64, f64)> = points.filter(|p| p.0 > 0.0 && p.1 > 0.0).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Curve { label, color, stroke, points }
}

fn against_size(title: String, rows: &[&Row], ceilings: &[&Row]) -> Chart {
    let groups = by_name(rows);
    let (mut latency, mut bandwidth) = (Vec::new(), Vec::new());
    for (color, (name, rows)) in groups.iter().enumerate() {
        let points = |y: fn(&Row) -> f64| rows.iter().map(move |r| (r.bytes as f64, y(r)));
        latency.push(curve(format!("{name}, replayed"), color, Stroke::Solid, points(|r| r.graph_us)));
        latency.push(curve(format!("{name}, eager"), color, Stroke::Dashed, points(|r| r.eager_us)));
        bandwidth.push(curve(name.to_string(), color, Stroke::Solid, points(|r| r.wire_gb_s)));
    }
    let sizes = rows.iter().map(|r| r.bytes as f64);
    let (least, most) = (sizes.clone().fold(f64::INFINITY, f64::min), sizes.fold(0.0, f64::max));
    for (k, (name, rows)) in by_name(ceilings).iter().enumerate() {
        let points: Vec<(f64, f64)> = match rows.as_slice() {
            [level] => vec![(least, level.wire_gb_s), (most, level.wire_gb_s)],
            rows => rows.iter().map(|r| (r.bytes as f64, r.wire_gb_s)).collect(),
        };
        bandwidth.push(curve(name.to_string(), groups.len() + k, Stroke::Dashed, points.into_iter()));
    }
    Chart {
        title,
        panels: vec![
            Panel {
                title: "time".into(),
                x: ("bytes of each rank's input".into(), Scale::Bytes),
                y: ("microseconds".into(), Scale::Log),
                curves: latency,
                legend: Corner::UpperLeft,
            },
            Panel {
                title: "bandwidth on the wire, each rank and direction".into(),
                x: ("bytes of each rank's input".into(), Scale::Bytes),
                y: ("GB/s".into(), Scale::Linear),
                curves: bandwidth,
                legend: Corner::MiddleLeft,
            },
        ],
    }
}

fn against_sms(title: String, rows: &[&Row]) -> Chart {
    let mut groups: BTreeMap<(usize, String), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.bytes, row.who())).or_default().push(row);
    }
    let curves = groups.iter().enumerate().map(|(color, ((bytes, name), rows))| {
        let label = format!("{name}, {}", fusewire_examples::ranks::bytes_text(*bytes));
        curve(label, color, Stroke::Solid, rows.iter().map(|r| (r.sms as f64, r.wire_gb_s)))
    });
    Chart {
        title,
        panels: vec![Panel {
            title: "bandwidth on the wire, each rank and direction".into(),
            x: ("multiprocessors that a launch holds".into(), Scale::Linear),
            y: ("GB/s".into(), Scale::Linear),
            curves: curves.collect(),
            legend: Corner::LowerRight,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = concat!(
        "a line of something else\n",
        r#"{"name":"NCCL","op":"all_to_all","world":4,"bytes":1024,"graph_us":6.4,"eager_us":19.7,"wire_gb_s":0.1,"sms":0,"checked":true}"#,
        "\n",
        r#"{"name":"NCCL","op":"all_to_all","world":4,"bytes":1073741824,"graph_us":2402.6,"eager_us":2408.8,"wire_gb_s":335.2}"#,
        "\n",
        r#"{"name":"fusewire","op":"all_to_all","world":4,"bytes":1024,"graph_us":2.9,"eager_us":5.1,"wire_gb_s":0.3}"#,
        "\n",
        r#"{"name":"fusewire","op":"all_to_all","world":4,"bytes":1073741824,"graph_us":2411.1,"eager_us":2450.9,"wire_gb_s":334.0}"#,
        "\n",
        r#"{"name":"copy engine","op":"ceiling","world":4,"wire_gb_s":386.0}"#,
        "\n",
        r#"{"name":"fusewire","op":"all_to_all","output":"ordinary","world":2,"bytes":67108864,"sms":8,"wire_gb_s":150.0}"#,
        "\n",
        r#"{"name":"fusewire","op":"all_to_all","output":"ordinary","world":2,"bytes":67108864,"sms":16,"wire_gb_s":280.0}"#,
    );

    #[test]
    fn rows_become_pictures_with_their_curves() {
        let pictures = pictures(&read(ROWS).unwrap());
        let names: Vec<&str> = pictures.iter().map(|p| p.0.as_str()).collect();
        assert_eq!(names, ["all-to-all-sms-2-gpus", "all-to-all-4-gpus"]);
        let [latency, bandwidth] = &pictures[1].1.panels[..] else { panic!("two panels") };
        let labels = |panel: &Panel| panel.curves.iter().map(|c| c.label.clone()).collect::<Vec<_>>();
        assert_eq!(
            labels(latency),
            ["NCCL, replayed", "NCCL, eager", "fusewire, replayed", "fusewire, eager"]
        );
        assert_eq!(labels(bandwidth), ["NCCL", "fusewire", "copy engine"]);
        assert_eq!(latency.curves[2].points, [(1024.0, 2.9), (1073741824.0, 2411.1)]);
        // One row is a level, as wide as the picture.
        assert_eq!(bandwidth.curves[2].points, [(1024.0, 386.0), (1073741824.0, 386.0)]);
        let sweep = &pictures[0].1.panels[0].curves[0];
        assert_eq!(sweep.points, [(8.0, 150.0), (16.0, 280.0)]);
        assert_eq!(sweep.label, "fusewire, ordinary output, 64 MiB");
    }

    #[test]
    fn pictures_are_written_and_have_something_in_them() {
        let folder = std::env::temp_dir().join(format!("fusewire-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("rows.jsonl");
        std::fs::write(&file, ROWS).unwrap();
        let written = plot(&folder, std::slice::from_ref(&file)).unwrap();
        assert_eq!(written.len(), 4);
        let svg = std::fs::read_to_string(folder.join("all-to-all-4-gpus.svg")).unwrap();
        for text in ["NCCL, replayed", "fusewire, eager", "copy engine", "1 KiB", "GB/s", "microseconds"] {
            assert!(svg.contains(text), "{text}");
        }
        let png = std::fs::read(folder.join("all-to-all-4-gpus.png")).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert!(info.width >= 1200 && info.height >= 500);
        // Lines and letters, in several colours, on white.
        let colors: BTreeSet<&[u8]> = pixels.chunks(3).collect();
        let ink = pixels.chunks(3).filter(|p| *p != [255, 255, 255]).count();
        assert!(colors.len() > 10 && ink > pixels.len() / 300 && ink < pixels.len() / 6, "{ink}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_row_is_told_by_line() {
        assert!(read("ok\n{\"name\":1}").unwrap_err().contains("line 2"));
        let empty = plot(Path::new("nowhere"), &[]).unwrap_err();
        assert!(empty.contains("no row to draw"), "{empty}");
    }
}
