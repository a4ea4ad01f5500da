//! Linear programs: the largest value of a linear form, under upper bounds and rows, by the primal simplex method with bounded
//! variables on a dense table.
//!
//! Invariants: every variable is 0 or more; every row's limit is 0 or more, so that all variables at 0 are a first solution
//! and no phase has to look for one. Ties that repeat are broken by Bland's rule, which cannot cycle. The prices returned
//! are those of the last basis. Why not a package: docs/decisions/013-own-linear-programs.md.
//! Not here: what variables mean (`flow`, `choice`), whole numbers (`choice`).

/// Below this, a number of a scaled program is nothing.
const TINY: f64 = 1e-9;
/// Steps without progress after which Bland's rule decides.
const STALLED_MAX: usize = 40;

#[derive(Clone, Debug)]
pub struct Row {
    pub terms: Vec<(usize, f64)>,
    pub limit: f64,
    /// The sum is the limit, and not below it.
    pub is_equal: bool,
}

/// Largest `gains` times variables, each between 0 and its upper bound.
#[derive(Clone, Default, Debug)]
pub struct Program {
    pub gains: Vec<f64>,
    pub uppers: Vec<f64>,
    pub rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Optimum {
    pub value: f64,
    pub values: Vec<f64>,
    /// What one more unit of a row's limit, or of a variable's upper bound, would add.
    pub row_prices: Vec<f64>,
    pub bound_prices: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing limits the value.
    Unbounded,
    /// More steps than any program of this size should take.
    NoEnd,
    /// More arithmetic than was allowed.
    TooMuch,
}

impl Program {
    pub fn variable(&mut self, gain: f64, upper: f64) -> usize {
        self.gains.push(gain);
        self.uppers.push(upper);
        self.gains.len() - 1
    }

    pub fn at_most(&mut self, terms: Vec<(usize, f64)>, limit: f64) {
        self.rows.push(Row { terms, limit, is_equal: false });
    }

    pub fn balanced(&mut self, terms: Vec<(usize, f64)>) {
        self.rows.push(Row { terms, limit: 0.0, is_equal: true });
    }

    #[cfg(test)]
    pub fn solve(&self) -> Result<Optimum, Failure> {
        self.solve_within(f64::INFINITY)
    }

    /// Finds the largest value with so many steps of arithmetic, some 10^9 a second.
    pub fn solve_within(&self, work_max: f64) -> Result<Optimum, Failure> {
        let mut table = Table::new(self);
        let steps_max = 200 * (table.columns + table.rows) + 1_000;
        let mut stalled = 0;
        for _ in 0..steps_max {
            let Some(entering) = table.entering(stalled > STALLED_MAX) else {
                return Ok(table.optimum(self));
            };
            if table.work > work_max {
                return Err(Failure::TooMuch);
            }
            let moved = table.step(entering, stalled > STALLED_MAX)?;
            stalled = if moved > TINY { 0 } else { stalled + 1 };
        }
        Err(Failure::NoEnd)
    }
}

/// Where a variable stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Lower,
    Upper,
    /// In the basis, by its row.
    Basic(usize),
}

/// The program in terms of its basis. Columns are the variables and, behind them, a slack for each row.
struct Table {
    rows: usize,
    columns: usize,
    /// Row after row.
    cells: Vec<f64>,
    /// What each variable would still add.
    reduced: Vec<f64>,
    uppers: Vec<f64>,
    at: Vec<At>,
    basis: Vec<usize>,
    /// Of the basic variables.
    values: Vec<f64>,
    /// What each row was multiplied with.
    scales: Vec<f64>,
    /// Steps of arithmetic that were taken.
    work: f64,
}

impl Table {
    fn new(program: &Program) -> Table {
        let (variables, rows) = (program.gains.len(), program.rows.len());
        let columns = variables + rows;
        let mut cells = vec![0.0; rows * columns];
        let (mut values, mut scales) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut uppers = program.uppers.clone();
        for (i, row) in program.rows.iter().enumerate() {
            let largest = row.terms.iter().map(|(_, factor)| factor.abs()).fold(0.0, f64::max);
            let scale = if largest > 0.0 { 1.0 / largest } else { 1.0 };
            for (variable, factor) in &row.terms {
                cells[i * columns + variable] += factor * scale;
            }
            cells[i * columns + variables + i] = 1.0;
            values.push(row.limit * scale);
            uppers.push(if row.is_equal { 0.0 } else { f64::INFINITY });
            scales.push(scale);
        }
        let mut reduced = program.gains.clone();
        reduced.resize(columns, 0.0);
        let mut at = vec![At::Lower; variables];
        at.extend((0..rows).map(At::Basic));
        let (basis, work) = ((variables..columns).collect(), 0.0);
        Table { rows, columns, cells, reduced, uppers, at, basis, values, scales, work }
    }

    /// The variable whose move adds most, or, by Bland's rule, the first that adds anything.
    fn entering(&self, is_careful: bool) -> Option<usize> {
        let adds = |j: usize| match self.at[j] {
            _ if self.uppers[j] <= 0.0 => 0.0,
            At::Lower => self.reduced[j],
            At::Upper => -self.reduced[j],
            At::Basic(_) => 0.0,
        };
        let mut candidates = (0..self.columns).filter(|j| adds(*j) > TINY);
        if is_careful { candidates.next() } else { candidates.max_by(|a, b| adds(*a).total_cmp(&adds(*b))) }
    }

    /// Moves a variable away from its bound as far as it goes. Returns how far that was.
    fn step(&mut self, entering: usize, is_careful: bool) -> Result<f64, Failure> {
        self.work += (self.rows + self.columns) as f64;
        let direction = if self.at[entering] == At::Upper { -1.0 } else { 1.0 };
        let mut far = self.uppers[entering];
        let mut leaving: Option<(usize, f64)> = None;
        for i in 0..self.rows {
            let slope = self.cells[i * self.columns + entering] * direction;
            if slope.abs() <= TINY {
                continue;
            }
            let upper = self.uppers[self.basis[i]];
            let room = if slope > 0.0 { self.values[i] } else { upper - self.values[i] };
            let distance = room.max(0.0) / slope.abs();
            if distance.is_infinite() {
                continue;
            }
            let is_first = match leaving {
                _ if distance < far - TINY * (1.0 + far.min(distance)) => true,
                // Of those that stop it at the same place, the steadiest pivot; by Bland's rule the first variable.
                Some((row, best)) if distance <= far + TINY * (1.0 + far) => {
                    if is_careful {
                        self.basis[i] < self.basis[row]
                    } else {
                        slope.abs() > best
                    }
                }
                _ => false,
            };
            if is_first {
                far = distance.min(far);
                leaving = Some((i, slope.abs()));
            }
        }
        if far.is_infinite() {
            return Err(Failure::Unbounded);
        }
        for i in 0..self.rows {
            self.values[i] -= self.cells[i * self.columns + entering] * direction * far;
        }
        match leaving {
            None => self.at[entering] = if direction > 0.0 { At::Upper } else { At::Lower },
            Some((row, _)) => {
                let start = if direction > 0.0 { 0.0 } else { self.uppers[entering] };
                let is_at_lower = self.cells[row * self.columns + entering] * direction > 0.0;
                self.at[self.basis[row]] = if is_at_lower { At::Lower } else { At::Upper };
                self.values[row] = start + direction * far;
                self.pivot(row, entering);
            }
        }
        Ok(far)
    }

    /// Brings a variable into the basis in place of the one of that row.
    fn pivot(&mut self, row: usize, entering: usize) {
        let columns = self.columns;
        let factor = 1.0 / self.cells[row * columns + entering];
        let own = &mut self.cells[row * columns..(row + 1) * columns];
        own.iter_mut().for_each(|cell| *cell *= factor);
        own[entering] = 1.0;
        let own = own.to_vec();
        let filled: Vec<usize> = (0..columns).filter(|j| own[*j] != 0.0).collect();
        self.work += (self.rows * filled.len()) as f64;
        let eliminate = |cells: &mut [f64]| {
            let factor = cells[entering];
            if factor != 0.0 {
                for j in &filled {
                    cells[*j] -= factor * own[*j];
                }
                cells[entering] = 0.0;
            }
        };
        for (i, cells) in self.cells.chunks_exact_mut(columns).enumerate() {
            if i != row {
                eliminate(cells);
            }
        }
        eliminate(&mut self.reduced);
        self.at[entering] = At::Basic(row);
        self.basis[row] = entering;
    }

    fn optimum(&self, program: &Program) -> Optimum {
        let variables = program.gains.len();
        let value_of = |j: usize| match self.at[j] {
            At::Lower => 0.0,
            At::Upper => self.uppers[j],
            At::Basic(row) => self.values[row].clamp(0.0, self.uppers[j]),
        };
        let values: Vec<f64> = (0..variables).map(value_of).collect();
        let price = |reduced: f64| if reduced.abs() <= TINY { 0.0 } else { reduced };
        let is_at_upper = |j: usize| self.at[j] == At::Upper || self.uppers[j] <= 0.0;
        Optimum {
            value: values.iter().zip(&program.gains).map(|(value, gain)| value * gain).sum(),
            row_prices: (0..self.rows).map(|i| price(-self.reduced[variables + i] * self.scales[i])).collect(),
            bound_prices: (0..variables)
                .map(|j| if is_at_upper(j) { price(self.reduced[j]).max(0.0) } else { 0.0 })
                .collect(),
            values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_program_has_the_known_optimum_and_prices() {
        let mut program = Program::default();
        let (x, y) = (program.variable(3.0, 4.0), program.variable(5.0, f64::INFINITY));
        program.at_most(vec![(y, 2.0)], 12.0);
        program.at_most(vec![(x, 3.0), (y, 2.0)], 18.0);
        let optimum = program.solve().unwrap();
        assert!((optimum.value - 36.0).abs() < 1e-9);
        assert!((optimum.values[x] - 2.0).abs() < 1e-9 && (optimum.values[y] - 6.0).abs() < 1e-9);
        assert!((optimum.row_prices[0] - 1.5).abs() < 1e-9 && (optimum.row_prices[1] - 1.0).abs() < 1e-9);
        assert_eq!(optimum.bound_prices, [0.0, 0.0]);
    }

    #[test]
    fn a_bound_that_holds_has_a_price_and_one_that_does_not_has_none() {
        let mut program = Program::default();
        let (x, y) = (program.variable(1.0, 3.0), program.variable(1.0, 9.0));
        program.at_most(vec![(x, 1.0), (y, 1.0)], 10.0);
        program.balanced(vec![(x, 1.0), (y, -1.0)]);
        let optimum = program.solve().unwrap();
        assert!((optimum.value - 6.0).abs() < 1e-9);
        assert!((optimum.bound_prices[x] - 2.0).abs() < 1e-9 && optimum.bound_prices[y] == 0.0);
    }

    #[test]
    fn what_nothing_limits_is_said_to_be_unbounded() {
        let mut program = Program::default();
        let (x, y) = (program.variable(1.0, f64::INFINITY), program.variable(0.0, f64::INFINITY));
        program.at_most(vec![(x, 1.0), (y, -1.0)], 5.0);
        assert_eq!(program.solve(), Err(Failure::Unbounded));
    }

    #[test]
    fn a_program_ends_when_its_work_is_used_up() {
        let mut program = Program::default();
        let (x, y) = (program.variable(1.0, f64::INFINITY), program.variable(2.0, f64::INFINITY));
        program.at_most(vec![(x, 1.0)], 1.0);
        program.at_most(vec![(y, 1.0)], 1.0);
        assert_eq!(program.solve_within(1.0), Err(Failure::TooMuch));
        assert!((program.solve_within(1e3).unwrap().value - 3.0).abs() < 1e-9);
    }

    /// Beale's example, on which the plain rule turns in a circle.
    #[test]
    fn a_program_that_cycles_without_a_rule_comes_to_its_end() {
        let mut program = Program::default();
        let x: Vec<usize> =
            [0.75, -20.0, 0.5, -6.0].into_iter().map(|gain| program.variable(gain, f64::INFINITY)).collect();
        program.at_most(vec![(x[0], 0.25), (x[1], -8.0), (x[2], -1.0), (x[3], 9.0)], 0.0);
        program.at_most(vec![(x[0], 0.5), (x[1], -12.0), (x[2], -0.5), (x[3], 3.0)], 0.0);
        program.at_most(vec![(x[2], 1.0)], 1.0);
        assert!((program.solve().unwrap().value - 1.25).abs() < 1e-9);
    }
}
