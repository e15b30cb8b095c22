//! A drawing as SVG: elements one after the other, and the style that they share.

use std::fmt::{Display, Write};

/// A file in the making.
#[derive(Clone, Debug)]
pub struct Drawing {
    svg: String,
}

/// A colour, as it is on light and on dark paper.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hue {
    light: &'static str,
    dark: &'static str,
}

impl Hue {
    /// For what the drawing is about.
    pub const RED: Hue = Hue {
        light: "#cf222e",
        dark: "#ff7b72",
    };
    /// For what it is compared with.
    pub const BLUE: Hue = Hue {
        light: "#0969da",
        dark: "#58a6ff",
    };
    /// For what else it is compared with.
    pub const VIOLET: Hue = Hue {
        light: "#8250df",
        dark: "#bc8cff",
    };
    /// For what is in the background.
    pub const GREY: Hue = Hue {
        light: "#6e7781",
        dark: "#9da7b1",
    };
}

/// How lines of a class look, with their dots and names.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LineStyle {
    /// What the class is called: a word of letters and digits.
    pub class: &'static str,
    /// Its colour.
    pub hue: Hue,
    /// How thick a line is.
    pub width: f64,
    /// Whether names are in bold type.
    pub is_bold: bool,
}

impl LineStyle {
    /// Lines whose names are in ordinary type.
    pub const fn new(class: &'static str, hue: Hue, width: f64) -> Self {
        LineStyle {
            class,
            hue,
            width,
            is_bold: false,
        }
    }
}

/// Which end of a text is where it is put.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The first letter.
    Start,
    /// The middle.
    Middle,
    /// The last letter.
    End,
}

impl Anchor {
    fn attribute(self) -> &'static str {
        match self {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        }
    }
}

/// How long the head of an arrow is.
const HEAD_LENGTH: f64 = 9.0;

const LIGHT_PAPER: &str = "#ffffff";
const DARK_PAPER: &str = "#0d1117";

const STYLE: &str = "
    svg { font: 13px system-ui, sans-serif }
    .paper { fill: #ffffff } text { fill: #24292f } .grid { stroke: #d8dee4 } .axis { stroke: #6e7781; fill: none }
    .title { font-size: 16px; font-weight: 600 }
    .line { fill: none; stroke-linejoin: round } .leader { fill: none; stroke-width: 1; stroke-dasharray: 1 3 }
    .second { stroke-dasharray: 7 4 }
";
const DARK_STYLE: &str =
    ".paper { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .axis { stroke: #8b949e }";

impl Drawing {
    /// Paper of this width and height with a title that begins at `left`, for lines in these styles.
    #[must_use]
    pub fn new(title: &str, (width, height): (f64, f64), left: f64, styles: &[LineStyle]) -> Self {
        let title = escape(title);
        let style = stylesheet(styles);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{title}\">\n<style>{style}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n\
             <text class=\"title\" x=\"{left}\" y=\"24\">{title}</text>\n"
        );
        Drawing { svg }
    }

    /// Writes a text.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = anchor.attribute();
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escape(text)
        ));
    }

    /// Writes the name of a line, in its colour.
    pub fn name(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        self.element(format_args!(
            "<text class=\"name {class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        ));
    }

    /// Writes a text in the colour of a line, readable also where lines cross it.
    pub fn label(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = anchor.attribute();
        self.element(format_args!(
            "<text class=\"label {class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>",
            escape(text)
        ));
    }

    /// Writes a text as [`label`](Self::label) does, turned clockwise by an angle about where it is anchored: along a line that is not level.
    pub fn turned_label(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: Anchor,
        degrees: f64,
        text: &str,
    ) {
        let anchor = anchor.attribute();
        self.element(format_args!(
            "<text class=\"label {class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor} transform=\"rotate({degrees:.1} {x:.1} {y:.1})\">{}</text>",
            escape(text)
        ));
    }

    /// Draws a line with a head at its end.
    pub fn arrow(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.line(class, [from, to]);
        let length = (to.0 - from.0).hypot(to.1 - from.1).max(1e-6);
        let (along_x, along_y) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
        let side = |sign: f64| {
            let (back, out) = (HEAD_LENGTH, sign * HEAD_LENGTH * 0.4);
            (
                to.0 - along_x * back - along_y * out,
                to.1 - along_y * back + along_x * out,
            )
        };
        self.path(&format!("head {class}"), [to, side(1.0), side(-1.0)]);
    }

    /// Draws a line through all points, if there are any.
    pub fn line(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        self.path(&format!("line {class}"), points);
    }

    /// Draws the thin line that leads to a name.
    pub fn leader(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.path(&format!("leader {class}"), [from, to]);
    }

    /// Draws the axes: down at the left, and along the bottom.
    pub fn axes(&mut self, points: [(f64, f64); 3]) {
        self.path("axis", points);
    }

    fn path(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let places = points.into_iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
        let path = places.collect::<Vec<_>>().join("L");
        if !path.is_empty() {
            self.element(format_args!("<path class=\"{class}\" d=\"M{path}\"/>"));
        }
    }

    /// Draws a line of the grid.
    pub fn grid_line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.element(format_args!(
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Draws a dot on a line.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64)) {
        self.element(format_args!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
        ));
    }

    fn element(&mut self, element: impl Display) {
        writeln!(self.svg, "{element}").expect("a string takes everything");
    }

    /// The whole file.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

fn stylesheet(styles: &[LineStyle]) -> String {
    let (mut light, mut dark) = (STYLE.to_owned(), format!("      {DARK_STYLE}\n"));
    for style in styles {
        let LineStyle {
            class, hue, width, ..
        } = style;
        let bold = if style.is_bold { "; font-weight: 600" } else { "" };
        light += &format!(
            "    .{class} {{ stroke: {0} }} .{class}.line {{ stroke-width: {width} }} .dot.{class} {{ fill: {0}; stroke: none }} \
             .name.{class} {{ fill: {0}; stroke: none{bold} }} .head.{class} {{ fill: {0}; stroke: none }} \
             .label.{class} {{ fill: {0}; stroke: {LIGHT_PAPER}; stroke-width: 4; paint-order: stroke{bold} }}\n",
            hue.light
        );
        dark += &format!(
            "      .{class} {{ stroke: {0} }} .dot.{class}, .name.{class}, .head.{class} {{ fill: {0} }} \
             .label.{class} {{ fill: {0}; stroke: {DARK_PAPER} }}\n",
            hue.dark
        );
    }
    format!("{light}    @media (prefers-color-scheme: dark) {{\n{dark}    }}\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLES: [LineStyle; 1] = [LineStyle {
        class: "ours",
        hue: Hue::RED,
        width: 2.5,
        is_bold: true,
    }];

    #[test]
    fn text_cannot_become_an_element() {
        let mut drawing = Drawing::new("a < b & \"c\"", (10.0, 10.0), 0.0, &[]);
        drawing.text((1.0, 2.0), Anchor::Middle, "<text>");
        drawing.name("ours", (1.0, 2.0), "<text>");
        let svg = drawing.finish();
        assert_eq!(svg.matches("a &lt; b &amp; &quot;c&quot;").count(), 2);
        assert_eq!(svg.matches(">&lt;text></text>").count(), 2);
    }

    #[test]
    fn a_line_goes_through_its_points_and_none_through_none() {
        let mut drawing = Drawing::new("", (10.0, 10.0), 0.0, &STYLES);
        drawing.line("ours", [(1.0, 2.0), (3.04, 4.06)]);
        drawing.line("ours", []);
        let svg = drawing.finish();
        assert_eq!(svg.matches("<path").count(), 1);
        assert!(svg.contains("<path class=\"line ours\" d=\"M1.0 2.0L3.0 4.1\"/>"));
    }

    #[test]
    fn the_head_of_an_arrow_is_at_its_end_whichever_way_it_points() {
        for (to, expected) in [
            ((100.0, 0.0), "M100.0 0.0L91.0 3.6L91.0 -3.6"),
            ((-100.0, 0.0), "M-100.0 0.0L-91.0 -3.6L-91.0 3.6"),
        ] {
            let mut drawing = Drawing::new("", (10.0, 10.0), 0.0, &STYLES);
            drawing.arrow("ours", (0.0, 0.0), to);
            let svg = drawing.finish();
            assert!(
                svg.contains(&format!("<path class=\"head ours\" d=\"{expected}\"/>")),
                "{svg}"
            );
            assert_eq!(svg.matches("<path class=\"line ours\"").count(), 1);
        }
        // One that leads nowhere is no reason to divide by zero.
        let mut drawing = Drawing::new("", (10.0, 10.0), 0.0, &STYLES);
        drawing.arrow("ours", (1.0, 1.0), (1.0, 1.0));
        assert!(!drawing.finish().contains("NaN"));
    }

    #[test]
    fn a_class_has_its_colour_on_either_paper() {
        let svg = Drawing::new("", (10.0, 10.0), 0.0, &STYLES).finish();
        let (light, dark) = svg.split_once("@media").expect("a style for dark paper");
        assert!(light.contains(".ours { stroke: #cf222e }") && light.contains("stroke-width: 2.5"));
        assert!(
            light.contains("font-weight: 600 }\n")
                && light.contains("stroke: #ffffff")
                && dark.contains("stroke: #0d1117")
        );
        assert!(dark.contains(".ours { stroke: #ff7b72 }"));
    }
}
