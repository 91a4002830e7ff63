#include "table.h"

const dm_kernels dm_kernels_table = {
    .qscratch = dm_qscratch,
    .qblock = dm_qblock,
    .qmatmul = dm_qmatmul,
    .qgated = dm_qgated,
    .fscratch = dm_fscratch,
    .fmatmul = dm_fmatmul,
    .fgated = dm_fgated,
    .attention_refuses = dm_attention_refuses,
    .attention_scratch = dm_attention_scratch,
    .attention_run = dm_attention_run,
};
