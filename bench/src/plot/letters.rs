//! Letters for pictures of pixels, from a font that is part of the program: no machine's fonts are asked for.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters::backend::BitMapBackend;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontTransform,
};

const HEIGHT: RasterHeight = RasterHeight::Size20;

/// A picture of pixels whose letters are drawn here.
pub struct Lettered<'p>(pub BitMapBackend<'p>);

type Outcome<T = ()> = Result<T, DrawingErrorKind<<BitMapBackend<'static> as DrawingBackend>::ErrorType>>;

impl DrawingBackend for Lettered<'_> {
    type ErrorType = <BitMapBackend<'static> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Outcome {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Outcome {
        self.0.present()
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Outcome {
        self.0.draw_pixel(at, color)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Outcome {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Outcome {
        self.0.draw_rect(from, to, style, fill)
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Outcome {
        let (width, height) = size(text);
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        let upright = matches!(style.transform(), FontTransform::None);
        let color = style.color();
        for (k, letter) in text.chars().enumerate() {
            let Some(raster) = get_raster(letter, FontWeight::Regular, HEIGHT) else { continue };
            let start = k as i32 * get_raster_width(FontWeight::Regular, HEIGHT) as i32;
            for (y, line) in raster.raster().iter().enumerate() {
                for (x, ink) in line.iter().enumerate().filter(|(_, ink)| **ink > 0) {
                    let (x, y) = (left + start + x as i32, top + y as i32);
                    // Turned text reads from below.
                    let place = if upright { (at.0 + x, at.1 + y) } else { (at.0 + y, at.1 - x) };
                    let alpha = color.alpha * f64::from(*ink) / 255.0;
                    self.0.draw_pixel(place, BackendColor { alpha, rgb: color.rgb })?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(&self, text: &str, _: &S) -> Outcome<(u32, u32)> {
        let (width, height) = size(text);
        Ok((width as u32, height as u32))
    }
}

fn size(text: &str) -> (i32, i32) {
    let width = get_raster_width(FontWeight::Regular, HEIGHT) * text.chars().count();
    (width as i32, HEIGHT.val() as i32)
}
