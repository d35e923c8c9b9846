//! Figures as a person reads them.

/// What stands where there is no figure.
pub(super) const NOTHING: &str = "–";

/// About three digits: `0.123`, `4.56`, `78.9`, `1,234`; what no measurement yields, as a power of ten.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if !size.is_finite() => return NOTHING.to_owned(),
        0.0 => 0,
        size if size >= 1e12 => return format!("{value:.2e}"),
        size if size < 0.9995 => 3,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    thousands(&format!("{value:.decimals$}"))
}

/// A count, in full: `12,345`.
pub(super) fn count(value: impl TryInto<u64>) -> String {
    value.try_into().map_or_else(|_| NOTHING.to_owned(), |value| thousands(&value.to_string()))
}

/// A figure that a server may not tell.
pub(super) fn number_if(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), number)
}

/// Microseconds in the unit that suits: `43.2 µs`, `1.18 ms`, `2.35 s`.
pub(super) fn time(microseconds: f64) -> String {
    match microseconds.abs() {
        size if size < 999.5 => format!("{} µs", number(microseconds)),
        size if size < 999_500.0 => format!("{} ms", number(microseconds / 1e3)),
        _ => format!("{} s", number(microseconds / 1e6)),
    }
}

/// `7.8 GiB`.
pub(super) fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// `1 waiter`, `16 waiters`.
pub(super) fn of(count: usize, thing: &str) -> String {
    format!("{} {thing}{}", self::count(count), if count == 1 { "" } else { "s" })
}

/// The middle one; of an even number, the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

fn thousands(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_about_three_digits() {
        let shown: Vec<_> =
            [0.0, 0.1234, 0.9996, 9.994, 9.996, 99.94, 99.96, 1234.4, 1_234_567.0, -4321.0, 1e300, f64::NAN]
                .into_iter()
                .map(number)
                .collect();
        assert_eq!(
            shown,
            [
                "0",
                "0.123",
                "1.00",
                "9.99",
                "10.0",
                "99.9",
                "100",
                "1,234",
                "1,234,567",
                "-4,321",
                "1.00e300",
                "–"
            ]
        );
    }

    #[test]
    fn a_time_has_the_unit_that_suits() {
        let shown: Vec<_> = [43.21, 999.6, 1180.0, 999_600.0, 2.35e6].into_iter().map(time).collect();
        assert_eq!(shown, ["43.2 µs", "1.00 ms", "1.18 ms", "1.00 s", "2.35 s"]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, f64::NAN, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
