// SPDX-License-Identifier: Apache-2.0
// Trains a small language model on any text, with as many workers as hvdrun starts:
//
//     hvdrun -np 4 build/release/bin/train --text README.md --text docs
//
// The training itself, with all that is particular to hvd, is train/training.h; the model, which
// computes on the host, the data, and a ledger of it all stand beside it.
#include "train/model.h"
#include "train/training.h"

int main(int argc, char** argv) { return train::run_program<train::Model>("train", argc, argv); }
