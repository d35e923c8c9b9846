//! The colours of plots. They are drawn in the light ones; the style sheet turns them for a dark screen.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::record::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ink {
    light: u32,
    dark: u32,
}

pub(super) const TEXT: Ink = Ink { light: 0x1b_1f_24, dark: 0xe6_ed_f3 };
pub(super) const FAINT: Ink = Ink { light: 0x5b_64_6e, dark: 0x9d_a7_b1 };
pub(super) const GRID: Ink = Ink { light: 0xd8_de_e4, dark: 0x36_3c_45 };

/// After Okabe and Ito, for readers who do not tell red from green; the yellow, too pale for lines, left out.
const SERIES: [Ink; 7] = [
    Ink { light: 0x00_72_b2, dark: 0x4f_a8_e8 },
    Ink { light: 0xd5_5e_00, dark: 0xff_8f_45 },
    Ink { light: 0x00_8a_65, dark: 0x2f_c5_9c },
    Ink { light: 0xb5_55_8f, dark: 0xe3_94_c4 },
    Ink { light: 0x8a_6d_00, dark: 0xe0_b8_3c },
    Ink { light: 0x3d_9a_d1, dark: 0x8f_d0_ff },
    Ink { light: 0x6b_6b_6b, dark: 0xb4_b4_b4 },
];

pub(super) fn server(index: usize) -> Ink {
    SERIES[index % SERIES.len()]
}

pub(super) fn kind(kind: Kind) -> Ink {
    match kind {
        Kind::Ours => SERIES[0],
        Kind::Raw => SERIES[6],
        Kind::Unfenced => SERIES[1],
        Kind::Peer => SERIES[2],
    }
}

impl Ink {
    pub(super) fn color(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// Rules that give each light colour its dark one. They go by the attributes that plotters writes.
pub(super) fn dark_rules() -> String {
    let mut rules = String::new();
    for Ink { light, dark } in [TEXT, FAINT, GRID].into_iter().chain(SERIES) {
        for paint in ["fill", "stroke"] {
            let _ = writeln!(rules, "  svg [{paint}=\"#{light:06X}\"] {{ {paint}: #{dark:06X} }}");
        }
    }
    rules
}
