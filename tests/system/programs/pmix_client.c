// A PMIx client without MPI: every task puts a value, and the first and the last task ask for each other's without a
// fence before it, meet in a fence of their own, connect and disconnect. A spawn must be refused.
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(pmix_status_t status, const char *what)
{
    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
        exit(1);
    }
}

int main(void)
{
    pmix_proc_t me, all, pair[2];
    pmix_value_t value, *got;
    uint32_t size;

    must(PMIx_Init(&me, NULL, 0), "init");
    PMIX_PROC_CONSTRUCT(&all);
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    must(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &got), "size");
    size = got->data.uint32;
    PMIX_VALUE_RELEASE(got);

    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_UINT32;
    value.data.uint32 = 100 + me.rank;
    must(PMIx_Put(PMIX_GLOBAL, "test.value", &value), "put");
    must(PMIx_Commit(), "commit");

    if (me.rank == 0 || me.rank == size - 1) {
        PMIX_LOAD_PROCID(&pair[0], me.nspace, 0);
        PMIX_LOAD_PROCID(&pair[1], me.nspace, size - 1);
        must(PMIx_Get(&pair[me.rank == 0], "test.value", NULL, 0, &got), "get");
        printf("%u got %u\n", me.rank, got->data.uint32);
        PMIX_VALUE_RELEASE(got);
        must(PMIx_Fence(pair, 2, NULL, 0), "fence of two");
        must(PMIx_Connect(pair, 2, NULL, 0), "connect");
        must(PMIx_Disconnect(pair, 2, NULL, 0), "disconnect");
    }
    if (me.rank == 0) {
        pmix_nspace_t nspace;
        pmix_app_t app;
        pmix_status_t status;
        PMIX_APP_CONSTRUCT(&app);
        app.cmd = strdup("true");
        app.maxprocs = 1;
        status = PMIx_Spawn(NULL, 0, &app, 1, nspace);
        printf("spawn: %s\n", PMIx_Error_string(status));
    }
    must(PMIx_Fence(NULL, 0, NULL, 0), "fence of all");
    must(PMIx_Finalize(NULL, 0), "finalize");
    return 0;
}
